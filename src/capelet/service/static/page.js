// The page works without this: it sends the form in the background and refreshes the figures.
"use strict";

const parse = async (response) =>
  new DOMParser().parseFromString(await response.text(), "text/html");

const swap = (page, id) => {
  const fresh = page.getElementById(id);
  const old = document.getElementById(id);
  if (fresh && old) old.replaceWith(fresh);
  return fresh;
};

const form = document.getElementById("try-form");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const body = new URLSearchParams(new FormData(form));
    const page = await parse(await fetch("/try", { method: "POST", body }));
    const reading = swap(page, "reading");
    swap(page, "figures");
    if (reading) reading.focus();
    else location.reload(); // the session is over: the log-in came back
  } finally {
    button.disabled = false;
  }
});

setInterval(async () => {
  if (document.hidden) return;
  const response = await fetch("/").catch(() => null);
  if (response && response.ok) swap(await parse(response), "figures");
}, 5000);
