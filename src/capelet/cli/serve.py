"""`capelet serve`: a recipe behind the protocol of OpenAI's embeddings."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from capelet.cli.doors import Group
from capelet.cli.terminal import echo
from capelet.errors import CapeletError, MissingExtra, name_field
from capelet.question import Address, Columns, Service

if TYPE_CHECKING:
    from fastapi import FastAPI

    from capelet.data.corpus import Corpus
    from capelet.ledger.budgets import Refill
    from capelet.ledger.store import Ledger
    from capelet.release.charging import Repeats

_PACKAGES = ("fastapi", "uvicorn", "orjson", "prometheus_client")


def serve(
    *,
    service: Service,
    address: Address,
    columns: Annotated[Columns, Group.DATA, "text private"],
) -> None:
    """Serve private embeddings to OpenAI clients, every text charged to a person; or a head.

    Example: `capelet serve --recipe private.toml --ledger people.db --budget 40`
    """
    if any(find_spec(package) is None for package in _PACKAGES):
        raise MissingExtra("the gateway", "service")
    from capelet.service.server import check_certificate, end_process

    check_certificate(address)
    if service.recipe is None:
        _serve_head(_head_alone(service), service.ledger, address)
    else:
        _serve_recipe(service, service.recipe, address, columns)
    end_process()


def _serve_recipe(service: Service, recipe: Path, address: Address, columns: Columns) -> None:
    """Serve embeddings that people are charged for, and labels where there is a head, too."""
    if service.ledger is None or service.budget is None:
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

    settings = Settings(service.model or _name_of(recipe), cast("Repeats", service.repeats))
    ever = None if service.lifetime is None else Budget(service.lifetime)
    limits = Limits(Budget(service.budget), cast("Refill", service.refill), ever)
    encoder = PrivateEncoder.from_recipe(recipe)
    labels = None if service.head is None else load_head(service.head)
    with Ledger(service.ledger, keeps_names=False) as book:
        gateway = Gateway(encoder, book, settings, limits, allow_unproven=service.allow_unproven)
        _check_open(address, book)
        book.open()
        book.limit(limits.budget, limits.refill, limits.lifetime)
        demo = None if service.no_demo else _demo(service.demo_data, columns)
        demonstration = None if demo is None else Demonstration(encoder, demo)
        app = create_app(gateway, demonstration=demonstration, head=labels, has_tls=address.has_tls)
        _run(app, address, settings.model, gateway.guarantee.sentence())


def _head_alone(service: Service) -> Path:
    """The head that is served without a recipe, and so without what only embeddings have."""
    if service.head is None:
        raise CapeletError(
            "what is to be served? Give --recipe (private embeddings of texts), --head (labels of "
            "released vectors), or both"
        )
    for name in ("budget", "lifetime", "model", "demo_data"):
        if getattr(service, name) is not None:
            raise CapeletError(
                f"{name_field(name)} is for embeddings, and labels of released vectors cost "
                "nothing; give --recipe too, or leave it out"
            )
    return service.head


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
    from capelet.service.server import check_open

    warning = check_open(address, ledger is not None and ledger.keys.exist())
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
