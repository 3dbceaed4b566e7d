"""`capelet serve`: a recipe behind the protocol of OpenAI's embeddings."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

from capelet.cli import options
from capelet.cli.terminal import echo
from capelet.errors import CapeletError, MissingExtra

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
    from capelet.privacy.budgets import Refill
    from capelet.release.charging import Repeats

_PACKAGES = ("fastapi", "uvicorn", "orjson", "prometheus_client")


def serve(
    recipe: options.Recipe,
    store: options.Store,
    budget: options.ServedBudget,
    refill: options.Refill = "none",
    lifetime: options.Lifetime = None,
    repeats: options.ServedRepeats = "same",
    model: options.ServedModel = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8000,
    certificate: options.Certificate = None,
    key: options.CertificateKey = None,
    demo_data: options.DemoData = None,
    text: options.Text = None,
    private: options.Private = None,
    no_demo: options.NoDemo = False,
    allow_unproven: options.AllowUnproven = False,
) -> None:
    """Serve private embeddings to OpenAI clients; every text is charged to a person.

    Example: `capelet serve --recipe private.toml --store people.db --budget 40`
    """
    if any(find_spec(package) is None for package in _PACKAGES):
        raise MissingExtra("the gateway", "service")
    from capelet.privacy.budgets import Budget, Limits
    from capelet.privacy.store import Ledger
    from capelet.release import PrivateEncoder
    from capelet.service.app import create_app
    from capelet.service.gateway import Gateway
    from capelet.service.readings import Readings
    from capelet.service.server import Address, quiet_logs
    from capelet.service.server import serve as run_server
    from capelet.service.settings import Settings

    address = Address(host, port, certificate, key)
    settings = Settings(model or _name_of(recipe), cast("Repeats", repeats))
    ever = None if lifetime is None else Budget(lifetime)
    limits = Limits(Budget(budget), cast("Refill", refill), ever)
    encoder = PrivateEncoder.from_recipe(recipe)
    with Ledger(store, keeps_names=False) as ledger:
        gateway = Gateway(encoder, ledger, settings, limits, allow_unproven=allow_unproven)
        warning = address.check_open(ledger.keys.exist())
        ledger.open()
        ledger.limit(limits.budget, limits.refill, limits.lifetime)
        readings = None if no_demo else Readings(encoder, _demo(demo_data, text, private))
        if warning:
            echo(f"capelet: {warning}", file=sys.stderr)
        quiet_logs()

        def announce(url: str) -> None:
            echo(f"serving {settings.model} at {url}: {gateway.guarantee.sentence()}")
            sys.stdout.flush()

        app = create_app(gateway, readings=readings, has_tls=address.has_tls)
        run_server(app, address, announce)
    echo("stopped; what was in flight is finished", file=sys.stderr)


def _name_of(recipe: Path) -> str:
    """The model's name: that of the recipe's folder, or of its file."""
    whole = recipe.resolve()
    return whole.parent.name if whole.name == "recipe.toml" else whole.stem


def _demo(source: str | None, text: str | None, private: list[str] | None) -> Corpus:
    """The texts on which the page's attackers learn: the operator's own, or the embedded sample."""
    import capelet

    if source is None:
        if text is not None or private:
            raise CapeletError("--text and --private name columns of --demo-data; give that too")
        return capelet.load("reviews")
    names = [name for item in private or [] for name in item.split(",")]
    if text is None or not names:
        raise CapeletError("--demo-data needs --text and at least one --private attribute")
    return capelet.read(source, text=text, private=names)
