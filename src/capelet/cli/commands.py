"""The table of commands, and the app that is built from it.

To add a command: a function in a module of this room, whose docstring says what it does and ends
with an example, and a line in `COMMANDS`. Every import that costs time happens inside a command, so
that `capelet --help` answers at once.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from capelet.cli import (
    PROGRAM,
    audit,
    budgets,
    cache,
    catalogue,
    check,
    dual,
    encode,
    invert,
    keys,
    lm,
    membership,
    protect,
    report,
    serve,
    study,
    verify,
)
from capelet.cli.terminal import guard
from capelet.silence import give_torch_a_folder

COMMANDS: dict[str, Callable[..., None]] = {
    "check": check.check,
    "audit": audit.audit,
    "protect": protect.protect,
    "report": report.report,
    "encode": encode.encode,
    "verify": verify.verify,
    "serve": serve.serve,
    "invert": invert.invert,
    "membership": membership.membership,
    "list": catalogue.show,
    "dual train": dual.train,
    "dual utility": dual.utility,
    "lm train": lm.train,
    "lm attack": lm.attack,
    "lm compare": lm.compare,
    "study run": study.run,
    "study status": study.status,
    "study check": study.check,
    "study results": study.results,
    "budgets show": budgets.show,
    "budgets raise": budgets.raise_cap,
    "budgets erase": budgets.erase,
    "budgets backup": budgets.backup,
    "budgets restore": budgets.restore,
    "budgets rotate": budgets.rotate,
    "keys add": keys.add,
    "keys list": keys.show,
    "keys revoke": keys.revoke,
    "cache clear": cache.clear,
    "cache where": cache.where,
}
GROUPS = {
    "dual": "Sentence encoders that hide words and writers.",
    "lm": "Private language models, and attacks on them.",
    "study": "Grids of measurements from a plan; `study PLAN.toml` is `study run PLAN.toml`.",
    "budgets": "What people have spent in a ledger, and its cap.",
    "keys": "API keys of a service.",
    "cache": "The cache of raw vectors on this machine.",
}
# Groups whose name alone, with arguments of its own, is one of their commands.
DEFAULTS = {"study": "run"}
EXAMPLE = "Example: "
# Commands that may work longer than two seconds, imports included (torch alone takes three): they
# begin with a line that says what they are about to do.
LONG = (
    "check",
    "audit",
    "protect",
    "encode",
    "verify",
    "invert",
    "membership",
    "dual train",
    "dual utility",
    "lm train",
    "lm attack",
    "study run",
    "study check",
    "serve",
)


class FilledCommand(TyperCommand):
    """A command whose help names the members of tables, and which says at once what it is about.

    The members are looked up when help is shown.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        # Filled only here: the tables may import a model framework, which no other run of the
        # command line should wait for.
        self.help = catalogue.fill_names(self.help or "")
        for parameter in self.params:
            text = getattr(parameter, "help", None)
            if text:
                parameter.help = catalogue.fill_names(text)  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        path = " ".join(ctx.command_path.split()[1:])
        # Called from another program, nobody waits before a screen for imports, nor is torch ours.
        if path in LONG and ctx.find_root().obj == PROGRAM:
            if not ctx.params.get("json"):
                claim = (self.help or "").splitlines()[0].rstrip(".")
                line = f"capelet: {path}: {claim[:1].lower()}{claim[1:]}"
                # Flushed: all else may be minutes away.
                print(line, file=sys.stderr, flush=True)
            give_torch_a_folder()
        return super().invoke(ctx)


class CommandTable(TyperGroup):
    """All commands of the table, which is read each time that the app starts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": _build_commands()})


class GroupWithDefault(TyperGroup):
    """A group that takes what is no command of its own for arguments of its default command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = [DEFAULTS[str(self.name)], *args]
        return list(super().parse_args(ctx, args))


def _build_commands() -> dict[str, Any]:
    whole = typer.Typer(rich_markup_mode="markdown")
    groups = {name: typer.Typer(no_args_is_help=True, help=text) for name, text in GROUPS.items()}
    for path, function in COMMANDS.items():
        *parents, name = path.split()
        parent = groups[parents[0]] if parents else whole
        text, _, example = inspect.cleandoc(function.__doc__ or "").partition(EXAMPLE)
        epilog = EXAMPLE + " ".join(example.split())
        parent.command(name, cls=FilledCommand, help=text, epilog=epilog)(guard(function))
    for name, group in groups.items():
        cls = GroupWithDefault if name in DEFAULTS else TyperGroup
        whole.add_typer(group, name=name, cls=cls)
    return dict(typer.main.get_group(whole).commands)


app = typer.Typer(
    name="capelet",
    cls=CommandTable,
    help="Find out what your text embeddings give away about the people who wrote the texts.",
    no_args_is_help=True,
    add_completion=False,
    # Typer's tracebacks can print local variables, which may be people's texts.
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from capelet import __version__

        print(__version__)
        raise typer.Exit
