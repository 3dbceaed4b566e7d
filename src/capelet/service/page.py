"""The operator's page: what is promised and what is not, who is near the limit, and a try.

Rendered here, with one small script that only refreshes parts of it; without the script every form
still works. A log-in with an operator's key gives a cookie that this process signed, for half an
hour: `HttpOnly`, `SameSite=Strict`. Forms bring back a token of the session, and must come from
this page. Whatever is typed or named reaches the page through the template's escaping alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import RedirectResponse, Response

from capelet.errors import CapeletError
from capelet.ledger.budgets import SLACK
from capelet.ledger.keys import ApiKey
from capelet.privacy.guarantees import Guarantee, ceiling, link_releases
from capelet.reports.html import templates as report_templates
from capelet.service.demonstration import AttributeGuess
from capelet.service.errors import Refusal, StoreErrors, bad_input, not_allowed
from capelet.service.gateway import Gateway
from capelet.service.schemas import Query
from capelet.service.security import Session, Sessions, check_origin, read_body

if TYPE_CHECKING:
    from capelet.service.app import Service

# Who is charged for what the operator tries; no real person should have this name.
TEST_PERSON = "capelet: try-it"
_TEXT_LENGTH = 4000
_NEAR = 10  # people near their limit
_COIN = (0.5, 0.5)  # an attribute of which nothing is known before


@dataclass(frozen=True)
class Tryout:
    """A text that the operator typed, and what became of it; it lives as long as the answer."""

    text: str = ""
    guesses: tuple[AttributeGuess, ...] = ()
    cost: float = 0.0
    left: float = 0.0
    refusal: str = ""


class OperatorPage:
    """The routes of the page."""

    def __init__(self, service: Service, has_tls: bool) -> None:
        self._service, self._has_tls = service, has_tls
        self._sessions = Sessions()

    def add_routes(self, app: FastAPI) -> None:
        for path, method, route in (
            ("/", "GET", self.show),
            ("/login", "POST", self.log_in),
            ("/logout", "POST", self.log_out),
            ("/try", "POST", self.try_text),
            ("/style.css", "GET", self.style),
            ("/page.js", "GET", self.script),
            # Browsers ask for it, and write a missing one into the console.
            ("/favicon.ico", "GET", self.icon),
        ):
            app.add_api_route(path, route, methods=[method], include_in_schema=False)

    # ---- routes ----

    async def show(self, request: Request) -> Response:
        session, key = await self._session(request)
        if session is None or key is None:
            return _render("login.html", refusal="")
        return await self._page(session, Tryout())

    async def log_in(self, request: Request) -> Response:
        check_origin(request)
        form = await self._form(request)
        try:
            key = await self._service.decide(
                self._service.callers.authenticate, form.get("key", "").strip() or None
            )
        except Refusal as error:
            return _render("login.html", error.status, refusal="this key is not known")
        if not key.is_operator:
            return _render("login.html", 403, refusal="this needs an operator's key")
        response = RedirectResponse("/", 303)
        response.set_cookie(
            Sessions.COOKIE,
            self._sessions.open(key.id),
            max_age=Sessions.SECONDS,
            httponly=True,
            samesite="strict",
            secure=self._has_tls,
        )
        return response

    async def log_out(self, request: Request) -> Response:
        check_origin(request)
        response = RedirectResponse("/", 303)
        response.delete_cookie(Sessions.COOKIE)
        return response

    async def try_text(self, request: Request) -> Response:
        check_origin(request)
        session, key = await self._session(request)
        if session is None or key is None:
            return RedirectResponse("/", 303)
        form = await self._form(request)
        if not secrets.compare_digest(form.get("token", "").encode(), session.token.encode()):
            raise not_allowed("this form is of another session; load the page again")
        text = form.get("text", "").strip()[:_TEXT_LENGTH]
        return await self._page(session, await self._try(key, text))

    async def style(self) -> Response:
        own = (files("capelet.service") / "static/page.css").read_text("utf-8")
        report = str(report_templates().globals["style"])
        return Response(f"{report}\n{own}", media_type="text/css")

    async def script(self) -> Response:
        content = (files("capelet.service") / "static/page.js").read_text("utf-8")
        return Response(content, media_type="text/javascript")

    async def icon(self) -> Response:
        return Response(status_code=204)

    # ---- parts ----

    async def _form(self, request: Request) -> dict[str, str]:
        body = await read_body(request, self._service.gateway.settings.bounds)
        try:
            fields = parse_qs(body.decode(), max_num_fields=8, strict_parsing=False)
        except ValueError:
            raise bad_input("the form cannot be read") from None
        return {name: values[0] for name, values in fields.items()}

    async def _session(self, request: Request) -> tuple[Session | None, ApiKey | None]:
        """The session and its key; none where the key was revoked meanwhile."""
        session = self._sessions.read(request.cookies.get(Sessions.COOKIE))
        if session is None:
            return None, None
        keys = await self._service.decide(_operators, self._service.gateway)
        return session, keys.get(session.key)

    async def _try(self, key: ApiKey, text: str) -> Tryout:
        service = self._service
        if not text:
            return Tryout(refusal="type a text first")
        demonstration = service.demonstration
        if demonstration is None or not demonstration.is_ready:
            return Tryout(text, refusal="the attackers are still learning; try again in a moment")
        query = Query((text,), (TEST_PERSON,))
        gateway = service.gateway
        try:
            # A key of its own for `fresh`: the operator asked for one more draw.
            idempotency = secrets.token_hex(16)
            _, settlement = await service.answer(
                lambda: gateway.plan_query(key, query, text.encode(), idempotency)
            )
            guesses = await service.decide(demonstration.read, text, settlement.vectors[0])
        except CapeletError as error:
            return Tryout(text, refusal=str(error))
        cost = float(settlement.is_new.sum()) * gateway.guarantee.epsilon
        return Tryout(text, tuple(guesses), cost, float(settlement.left[0]))

    async def _page(self, session: Session, trial: Tryout) -> Response:
        facts = await self._service.decide(self._facts)
        return _render("page.html", token=session.token, trial=trial, **facts)

    def _facts(self) -> Mapping[str, Any]:
        service = self._service
        gateway = service.gateway
        with StoreErrors():
            counts = gateway.ledger.counts()
            near = gateway.ledger.people_near_limit(_NEAR)
        demonstration = service.demonstration
        return {
            "gateway": gateway,
            "promise": describe_promise(gateway),
            "gaps": describe_gaps(gateway.guarantee, gateway.settings.repeats),
            "search": None if demonstration is None else demonstration.search,
            "has_demonstration": demonstration is not None,
            "counts": counts,
            "near": near,
            "refusals": sorted(service.metrics.refusals.items()),
            "latency": service.metrics.latency(),
            "waiting": service.batcher.waiting_texts,
            "room": gateway.settings.bounds.waiting_texts,
            "test_person": TEST_PERSON,
        }


def describe_promise(gateway: Gateway) -> list[str]:
    """The guarantee in sentences, with what it permits at most."""
    guarantee, limits = gateway.guarantee, gateway.limits
    texts = int(limits.total.epsilon / guarantee.epsilon * (1 + SLACK))
    sentences = [f"Each release: {guarantee.sentence()}."]
    # None where the guarantee is only claimed: then nothing is bounded.
    if (one := ceiling(_COIN, guarantee)) is not None:
        sentences.append(
            f"From one text nobody guesses a yes-or-no attribute better than {100 * one:.4g} %, "
            "with any method (a coin: 50 %)."
        )
    sentences.append(f"The budget: {limits.sentence()}, which pays for {texts:,} releases.")
    if texts and (everything := ceiling(_COIN, link_releases(guarantee, texts))) is not None:
        # Rounded, 99.99 % would read as a proof of knowledge.
        most = "over 99.9" if everything > 0.999 else f"{100 * everything:.3g}"
        sentences.append(
            f"For whoever ties all of them together the bound is {most} %: a smaller budget "
            "promises more."
        )
    return sentences


def describe_gaps(guarantee: Guarantee, repeats: str) -> list[str]:
    """What the guarantee does not cover, in sentences."""
    gaps = [
        "Who asks, when, how often, and how many tokens a text has.",
        "A person under two identifiers has two budgets; a text about Ann that names Bob as its "
        "subject is charged to Bob.",
        "Whoever runs this gateway sees the texts as they pass; the store holds vectors and keyed "
        "hashes, and its owner can test a guessed text against them.",
    ]
    if repeats == "same":
        gaps.append(
            "Equal texts of a person, asked with one key, get the same vector: which of them are "
            "equal is public to that key's holder."
        )
    if guarantee.training is not None:
        gaps.append(
            "The texts that the recipe's maps were trained on: see the part about training texts."
        )
    return gaps


def _operators(gateway: Gateway) -> dict[str, ApiKey]:
    with StoreErrors():
        keys = gateway.ledger.keys.all()
    return {key.id: key for key in keys if key.is_operator and key.revoked is None}


@lru_cache(maxsize=1)
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("capelet.service"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _render(name: str, status: int = 200, **values: Any) -> Response:
    content = _templates().get_template(name).render(**values)
    return Response(content, status, media_type="text/html")
