"""The table of commands, and the app that is built from it.

To add a command: a function in a module of this room, whose docstring says what it does and ends
with an example, and a line in `COMMANDS`. Every import that costs time happens inside a command, so
that `capelet --help` answers at once.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cyclopts

from capelet.cli import (
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
from capelet.cli.doors import as_command, flags_in_environment, words_of_config
from capelet.cli.terminal import echo, guard
from capelet.errors import CapeletError
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
CONFIG = "--config"
HELP = "--help"
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
# A service is often set up by its surroundings: what its line does not say is read off there.
FROM_ENVIRONMENT = ("serve",)

_EPILOGUE = f"`{CONFIG} FILE` reads options from a TOML file; those on the command line win."
_OPTIONS = cyclopts.Group("Options", sort_key=0)
_ABOUT = "Find out what your text embeddings give away about the people who wrote the texts."


def app(arguments: Sequence[str] | None = None, *, is_program: bool = False) -> None:
    """Run a command; `is_program` where this process is capelet and nothing else."""
    guard(_run)(list(sys.argv[1:] if arguments is None else arguments), is_program)


def _run(words: list[str], is_program: bool) -> None:
    if words and words[0] in DEFAULTS and not _path_of(words[:2]) and words[1:2] != [HELP]:
        # What is no command of the group is an argument of its default one.
        words = [words[0], *([DEFAULTS[words[0]]] if words[1:] else []), *words[1:]]
    path = _path_of(words)
    try:
        if path is not None:
            words = _with_config(path, words)
        whole = build(path, HELP in words, is_program)
        whole(words, exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.CycloptsError as error:
        echo(f"capelet: {_sentence(error)}", file=sys.stderr)
        raise SystemExit(2) from None


def _path_of(words: Sequence[str]) -> str | None:
    """The command that the words begin with."""
    return next((name for name in (" ".join(words[:2]), *words[:1]) if name in COMMANDS), None)


def _with_config(path: str, words: list[str]) -> list[str]:
    """The words with those of a file of options in the place of its name."""
    flat = [part for word in words for part in _split_config(word)]
    if CONFIG not in flat:
        return words
    place = flat.index(CONFIG)
    if place + 1 >= len(flat) or CONFIG in flat[place + 2 :]:
        raise CapeletError(f"{CONFIG} takes one TOML file", field="config")
    given = flat[:place] + flat[place + 2 :]
    command = COMMANDS[path]
    # A file says what nobody said more closely: on the line, or in the environment.
    known = flags_in_environment(command) if path in FROM_ENVIRONMENT else []
    return [*given, *words_of_config(command, Path(flat[place + 1]), [*given, *known])]


def _split_config(word: str) -> list[str]:
    return word.split("=", 1) if word.startswith(f"{CONFIG}=") else [word]


def _announced(path: str, command: Callable[..., None]) -> Callable[..., None]:
    """The command, which says at once what it is about to do: all else may be minutes away."""

    @functools.wraps(command)
    def run(*places: Any, **options: Any) -> None:
        if not options.get("json"):
            claim = (command.__doc__ or "").splitlines()[0].rstrip(".")
            print(f"capelet: {path}: {claim[:1].lower()}{claim[1:]}", file=sys.stderr, flush=True)
        give_torch_a_folder()
        command(*places, **options)

    return run


def _sentence(error: cyclopts.CycloptsError) -> str:
    """What Cyclopts found, in one line that says what to do."""
    argument = error.argument
    name = "" if argument is None else (*argument.names, argument.name)[0]
    match error:
        case cyclopts.CoercionError() if error.token is not None:
            return f"{name} is a switch and takes no value; found {error.token.value!r}"
        case cyclopts.MissingArgumentError():
            return f"{name} needs a value; {HELP} shows how it is given"
        case cyclopts.UnusedCliTokensError():
            return f"nothing is expected at {(error.unused_tokens or [''])[0]!r}; see {HELP}"
    text = " ".join(str(error).split()).rstrip(".")
    return f"{text[:1].lower()}{text[1:]}"


def build(asked: str | None, is_shown: bool, is_program: bool) -> cyclopts.App:
    """The app with all commands; where one is asked for, it alone has its options.

    Its help, where that is shown, has the names of its tables.
    """
    whole = _group("capelet", _ABOUT)
    whole.version_flags = ("--version",)
    groups: dict[str, cyclopts.App] = {}
    for place, (path, function) in enumerate(COMMANDS.items()):
        *parents, name = path.split()
        fill = _with_names if is_shown and path == asked else _plain
        text, _, example = inspect.cleandoc(function.__doc__ or "").partition(EXAMPLE)
        # Called from another program, nobody waits before a screen for imports, nor is torch ours.
        told = _announced(path, function) if is_program and path in LONG else function
        # To make the options of all commands takes as long as to run most of them.
        is_needed = asked in (None, path)
        command = as_command(told, fill, path in FROM_ENVIRONMENT) if is_needed else told
        epilogue = _plain(f"{EXAMPLE}{example}\n\n{_EPILOGUE}")
        # A group where its first command stands, so that help has the order of the table.
        if parents and parents[0] not in groups:
            groups[parents[0]] = _group(parents[0], GROUPS[parents[0]], place)
            whole.command(groups[parents[0]], name=parents[0])
        parent = groups[parents[0]] if parents else whole
        parent.command(command, name=name, help=fill(text), help_epilogue=epilogue, sort_key=place)
    return whole


def _plain(text: str) -> str:
    """Each paragraph in one line, without marks: to have Markdown read takes a sixth of `--help`.

    >>> _plain("Try `capelet audit`\\nfirst.\\n\\nThen go on.")
    'Try capelet audit first.\\n\\nThen go on.'
    """
    return "\n\n".join(" ".join(part.split()) for part in text.replace("`", "").split("\n\n"))


def _with_names(text: str) -> str:
    return _plain(catalogue.fill_names(text))


def _group(name: str, text: str, place: int = 0) -> cyclopts.App:
    from capelet import __version__

    return cyclopts.App(
        name=name,
        help=_plain(text),
        help_format="plaintext",
        version=__version__,
        version_flags=(),
        help_flags=(HELP,),
        group_parameters=_OPTIONS,
        sort_key=place,
    )
