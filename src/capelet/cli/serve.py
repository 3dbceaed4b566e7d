"""`capelet serve`: a recipe behind the protocol of OpenAI's embeddings."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from capelet.cli.doors import Group
from capelet.cli.terminal import echo
from capelet.errors import CapeletError, MissingExtra
from capelet.question import Between, Columns

if TYPE_CHECKING:
    from fastapi import FastAPI

    from capelet.data.corpus import Corpus
    from capelet.ledger.budgets import Refill
    from capelet.ledger.store import Ledger
    from capelet.release.charging import Repeats
    from capelet.service.server import Address

_PACKAGES = ("fastapi", "uvicorn", "orjson", "prometheus_client")


def serve(
    *,
    recipe: Annotated[
        Path | None,
        "A TOML recipe of the private encoder; steps: encoder, map, {mechanisms:or}. Needs "
        "--ledger and --budget.",
    ] = None,
    ledger: Annotated[
        str | None,
        "A ledger file, or the postgresql:// URL of a database. It has the API keys, too.",
    ] = None,
    budget: Annotated[float | None, "The most ε that a person may cost; the store's cap."] = None,
    head: Annotated[
        Path | None, "Folder of a private encoder: label vectors with its head."
    ] = None,
    refill: Annotated[
        str, "none, or daily: the budget is that of a day (UTC), with --lifetime."
    ] = "none",
    lifetime: Annotated[
        float | None, "With --refill daily: the most ε that a person may ever cost."
    ] = None,
    repeats: Annotated[
        str,
        "same: a text that comes again gets its stored vector, which shows that it is equal; "
        "fresh: every request is drawn and paid for, and needs an Idempotency-Key.",
    ] = "same",
    model: Annotated[str | None, "The model's name for clients; the recipe's."] = None,
    host: Annotated[str, "Where to listen; beyond this machine only with API keys."] = "127.0.0.1",
    port: Annotated[Annotated[int, Between(0, 65_535)], "The port; 0 takes a free one."] = 8000,
    certificate: Annotated[Path | None, "PEM file of the certificate, for TLS."] = None,
    key: Annotated[Path | None, "PEM file of the certificate's key."] = None,
    demo_data: Annotated[
        str | None, "Texts on which the page's attackers learn; the embedded sample."
    ] = None,
    columns: Annotated[Columns, Group.DATA, "text private"],
    no_demo: Annotated[bool, "Teach the operator's page no attackers."] = False,
    allow_unproven: Annotated[bool, "Serve a guarantee that is only claimed, too."] = False,
) -> None:
    """Serve private embeddings to OpenAI clients, every text charged to a person; or a head.

    Example: `capelet serve --recipe private.toml --ledger people.db --budget 40`
    """
    if any(find_spec(package) is None for package in _PACKAGES):
        raise MissingExtra("the gateway", "service")
    from capelet.service.server import Address

    address = Address(host, port, certificate, key)
    if recipe is None:
        charges = {
            "--budget": budget,
            "--lifetime": lifetime,
            "--model": model,
            "--demo-data": demo_data,
        }
        _check_head_alone(head, [name for name, value in charges.items() if value is not None])
        assert head is not None
        _serve_head(head, ledger, address)
        return
    if ledger is None or budget is None:
        raise CapeletError(
            "a recipe is served with --ledger, in which people are charged, and --budget, the most "
            "that each may cost"
        )
    from capelet.ledger.budgets import Budget, Limits
    from capelet.ledger.store import Ledger
    from capelet.release import PrivateEncoder
    from capelet.service.app import create_app
    from capelet.service.classify import load_head
    from capelet.service.demonstration import Demonstration
    from capelet.service.gateway import Gateway
    from capelet.service.settings import Settings

    settings = Settings(model or _name_of(recipe), cast("Repeats", repeats))
    ever = None if lifetime is None else Budget(lifetime)
    limits = Limits(Budget(budget), cast("Refill", refill), ever)
    encoder = PrivateEncoder.from_recipe(recipe)
    labels = None if head is None else load_head(head)
    with Ledger(ledger, keeps_names=False) as book:
        gateway = Gateway(encoder, book, settings, limits, allow_unproven=allow_unproven)
        _check_open(address, book)
        book.open()
        book.limit(limits.budget, limits.refill, limits.lifetime)
        shown = None if no_demo else Demonstration(encoder, _demo(demo_data, columns))
        app = create_app(gateway, demonstration=shown, head=labels, has_tls=address.has_tls)
        _run(app, address, settings.model, gateway.guarantee.sentence())


def _check_head_alone(head: Path | None, options_of_recipes: list[str]) -> None:
    if head is None:
        raise CapeletError(
            "what is to be served? Give --recipe (private embeddings of texts), --head (labels of "
            "released vectors), or both"
        )
    if options_of_recipes:
        raise CapeletError(
            f"{options_of_recipes[0]} is for embeddings, and labels of released vectors cost "
            "nothing; give --recipe too, or leave it out"
        )


def _serve_head(folder: Path, place: str | None, address: Address) -> None:
    """Serve a head alone; a ledger, where there is one, is only asked for API keys."""
    from capelet.ledger.store import Ledger
    from capelet.service.classify import create_head_app, load_head

    head = load_head(folder)
    with ExitStack() as stack:
        ledger = None if place is None else stack.enter_context(Ledger(place, keeps_names=False))
        if ledger is not None and not ledger.keys.exist():
            raise CapeletError(
                f"the ledger {ledger.place!r} has no API keys, and a head needs nothing else of "
                "it; make one with `capelet keys add`, or leave --ledger out"
            )
        _check_open(address, ledger)
        app = create_head_app(head, ledger, has_tls=address.has_tls)
        _run(app, address, f"labels of {head.task!r}", "released vectors only, never texts")


def _check_open(address: Address, ledger: Ledger | None) -> None:
    """Refuse to be open to others without keys; warn where keys would travel unhidden."""
    warning = address.check_open(ledger is not None and ledger.keys.exist())
    if warning:
        echo(f"capelet: {warning}", file=sys.stderr)


def _run(app: FastAPI, address: Address, model: str, promise: str) -> None:
    from capelet.service.server import quiet_logs
    from capelet.service.server import serve as run_server

    quiet_logs()

    def announce(url: str) -> None:
        echo(f"serving {model} at {url}: {promise}")
        sys.stdout.flush()

    run_server(app, address, announce)
    echo("stopped; what was in flight is finished", file=sys.stderr)


def _name_of(recipe: Path) -> str:
    """The model's name: that of the recipe's folder, or of its file."""
    whole = recipe.resolve()
    return whole.parent.name if whole.name == "recipe.toml" else whole.stem


def _demo(source: str | None, columns: Columns) -> Corpus:
    """The texts on which the page's attackers learn: the operator's own, or the embedded sample."""
    import capelet

    if source is None:
        if columns.text is not None or columns.private:
            raise CapeletError("--text and --private name columns of --demo-data; give that too")
        return capelet.load("reviews")
    names = [name for item in columns.private for name in item.split(",")]
    if columns.text is None or not names:
        raise CapeletError("--demo-data needs --text and at least one --private attribute")
    return capelet.read(source, text=columns.text, private=names)
