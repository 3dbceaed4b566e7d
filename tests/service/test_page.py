"""The operator's page: for operators, by keyboard, and whatever anybody named is no markup."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

import capelet
from capelet.data.corpus import Corpus
from capelet.errors import CapeletError
from capelet.ledger.store import Ledger
from capelet.release import PrivateEncoder
from capelet.service.demonstration import Demonstration
from capelet.service.page import TEST_PERSON
from service.browser import CHROMIUM, browse
from service.running import Running, listen, wait_for

MARKUP = "<img src=x onerror=document.title='owned'>"


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """The sample with one attribute whose classes are markup."""
    sample = capelet.load("reviews")
    gender = sample.private["gender"]
    planted = np.array([f"{MARKUP}{value}" for value in gender], dtype=object)
    return replace(sample, private={"country": sample.private["country"], "planted": planted})


@pytest.fixture(scope="module")
def running(
    private: PrivateEncoder, corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("store") / "store.db"
    with (
        Ledger(path, keeps_names=False) as ledger,
        listen(
            ledger, private, budget=40.0, demonstration=Demonstration(private, corpus)
        ) as running,
    ):
        shown = running.service.demonstration
        assert shown is not None
        wait_for(lambda: shown.is_ready)
        yield running


@pytest.fixture(scope="module")
def operator(running: Running) -> str:
    return running.ledger.keys.add("operator", is_operator=True)[1]


@contextmanager
def log_in(running: Running, secret: str) -> Iterator[httpx.Client]:
    with running.client(follow_redirects=True) as client:
        assert client.post("/login", data={"key": secret}).status_code == 200
        yield client


def token_of(client: httpx.Client) -> str:
    return client.get("/").text.partition('name="token" value="')[2].partition('"')[0]


def test_only_an_operator_sees_the_page(running: Running, operator: str) -> None:
    _, plain = running.ledger.keys.add("plain")
    with running.client(follow_redirects=True) as client:
        assert "Operator's key" in client.get("/").text
        for wrong, status in (("", 401), ("wrong", 401), (plain, 403)):
            answer = client.post("/login", data={"key": wrong})
            assert answer.status_code == status
            assert "What it does not cover" not in answer.text
        cookie = client.post("/login", data={"key": operator}, follow_redirects=False)
    header = cookie.headers["set-cookie"].lower()
    assert "httponly" in header and "samesite=strict" in header and "max-age=1800" in header
    assert operator not in header


def test_the_page_says_what_is_promised_and_what_is_not(running: Running, operator: str) -> None:
    running.ask("a text", operator, user="zanzibar-person")
    running.ask("", operator)
    with log_in(running, operator) as client:
        page = client.get("/").text
    assert "2-local differential privacy for each text" in page
    assert "better than 88.08 %" in page  # e²/(1 + e²)
    assert "which pays for 20 releases" in page
    assert "What it does not cover" in page and "which of them are equal is public" in page
    assert "of the 10 nearest of" in page and "does not serve search" in page
    assert "median" in page and "room for 8,192" in page
    assert "invalid_request_error" in page  # the empty text
    near = running.ledger.people_near_limit(1)[0]
    assert near.pseudonym in page
    assert "zanzibar" not in page


def test_a_try_is_read_charged_to_the_test_person_and_not_stored(
    running: Running, operator: str
) -> None:
    before = running.ledger.counts().releases
    with log_in(running, operator) as client:
        form = {"token": token_of(client), "text": "I zanzibar the colour"}
        page = client.post("/try", data=form).text
        assert "from the raw vector" in page and "country" in page
        assert "Charged: ε = 2;" in page
        # Again: it was paid for.
        assert "Charged: ε = 0;" in client.post("/try", data=form).text
    assert running.ledger.counts().releases == before + 1
    spent = running.ledger.spent(TEST_PERSON)
    assert spent is not None and spent.epsilon >= 2.0
    folder = Path(running.ledger.place).parent
    assert not any(b"zanzibar" in path.read_bytes() for path in folder.iterdir())


def test_markup_is_inert(running: Running, operator: str) -> None:
    with log_in(running, operator) as client:
        form = {"token": token_of(client), "text": f"</textarea>{MARKUP}"}
        page = client.post("/try", data=form).text
    assert MARKUP not in page
    assert "&lt;img src=x" in page


def test_a_form_from_elsewhere_is_refused(running: Running, operator: str) -> None:
    with log_in(running, operator) as client:
        form = {"token": token_of(client), "text": "a text"}
        foreign = [{"Origin": origin} for origin in ("http://evil.example", "null", "http://[")]
        for header in (*foreign, {"Sec-Fetch-Site": "cross-site"}):
            assert client.post("/try", data=form, headers=header).status_code == 403
            assert client.post("/login", data={}, headers=header).status_code == 403
        assert client.post("/try", data={"text": "a text"}).status_code == 403
        assert client.post("/try", data={"text": "a", "token": "é"}).status_code == 403
        own = {"Origin": running.url, "Sec-Fetch-Site": "same-origin"}
        assert client.post("/try", data=form, headers=own).status_code == 200
    with running.client() as stranger:
        assert stranger.post("/try", data=form).status_code == 303


def test_a_revoked_key_ends_its_session(running: Running) -> None:
    key, secret = running.ledger.keys.add("second operator", is_operator=True)
    with log_in(running, secret) as client:
        assert "What it does not cover" in client.get("/").text
        running.ledger.keys.revoke(key.id)
        assert "Operator's key" in client.get("/").text


def test_logging_out(running: Running, operator: str) -> None:
    with log_in(running, operator) as client:
        assert "Operator's key" in client.post("/logout").text


def test_an_empty_try_and_a_spent_test_person(
    serve: Callable[..., Running], private: PrivateEncoder
) -> None:
    shown = Demonstration(private, capelet.load("reviews"))
    running = serve(budget=2.0, demonstration=shown)
    _, secret = running.ledger.keys.add("operator", is_operator=True)
    with log_in(running, secret) as client:
        form = {"token": token_of(client), "text": "one"}
        if not shown.is_ready:
            assert "still learning" in client.post("/try", data=form).text
        wait_for(lambda: shown.is_ready)
        assert "type a text first" in client.post("/try", data={**form, "text": " "}).text
        assert "Charged: ε = 2;" in client.post("/try", data=form).text
        assert "does not cover this request" in client.post("/try", data={**form, "text": "2"}).text


def test_attackers_read_the_raw_vector_and_not_the_private_one(
    private: PrivateEncoder,
) -> None:
    """The country is written all over the sample; at ε = 2 nobody can read it off a vector."""
    shown = Demonstration(private, capelet.load("reviews"))
    shown.learn()
    text = "The colour is lovely"
    by_name = {
        item.attribute: item for item in shown.read(text, private.release([text]).vectors[0])
    }
    country = by_name["country"]
    assert country.chance == 0.25
    assert country.raw.accuracy > 0.45
    assert country.private.accuracy < 0.35
    assert shown.search is not None and "does not serve search" in shown.search


def test_attackers_need_attributes_and_writers(private: PrivateEncoder) -> None:
    with pytest.raises(CapeletError, match="private attribute"):
        Demonstration(private, Corpus("two", texts=["one text", "another"]))


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on PATH")
def test_in_a_browser_by_keyboard_alone(running: Running, operator: str, tmp_path: Path) -> None:
    with browse(tmp_path) as browser:
        browser.open(running.url)
        # The field has the focus from the start.
        browser.type(operator)
        browser.press("Enter")
        browser.wait_until("document.getElementById('try-form') !== null")
        browser.tab_to("#text")
        browser.type("My lovely colour " + MARKUP)
        browser.tab_to("#try-form button")
        browser.press("Enter")
        browser.wait_until("document.querySelectorAll('#reading tbody tr').length === 2")
        # What changed has the focus, so that a screen reader goes there.
        assert browser.evaluate("document.activeElement.id") == "reading"
        heads = browser.evaluate(
            "[...document.querySelectorAll('#reading thead th')].map(item => item.textContent)"
        )
        assert heads == ["attribute", "chance", "from the raw vector", "from the private vector"]
        assert browser.evaluate("document.querySelectorAll('img').length") == 0
        assert "owned" not in browser.evaluate("document.title")
        width = browser.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0
        browser.picture(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 50_000
        assert browser.console == []
