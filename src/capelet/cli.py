"""The command line: parse, build, call one function, print.

Every import that costs time happens inside a command, so that `capelet --help` answers at once.
"""

from __future__ import annotations

import functools
import json as jsonlib
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capelet.errors import CapeletError, DataError, did_you_mean

if TYPE_CHECKING:
    from capelet.corpus import Corpus
    from capelet.findings import Findings
    from capelet.interfaces import Progress
    from capelet.release import PrivateEncoder

app = typer.Typer(
    name="capelet",
    help="Find out what your text embeddings give away about the people who wrote the texts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
cache_app = typer.Typer(no_args_is_help=True, help="The cache of raw vectors on this machine.")
app.add_typer(cache_app, name="cache")

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def main() -> None:
    """The `capelet` command."""
    app()


def sentences(command: Callable[..., None]) -> Callable[..., None]:
    """Bad input ends with one sentence and exit code 2, never with a traceback."""

    @functools.wraps(command)
    def guarded(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except CapeletError as error:
            print(f"capelet: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("capelet: stopped; nothing was written to the output folder", file=sys.stderr)
            raise typer.Exit(130) from None

    return guarded


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from capelet import __version__

        print(__version__)
        raise typer.Exit


@app.command(
    epilog="Example: `capelet audit mails.parquet --text body --label topic "
    "--private gender,age --author sender --out runs/mails`"
)
@sentences
def audit(
    data: Annotated[
        str,
        typer.Argument(help="A Parquet, CSV or JSONL file, a datasets folder, or a set."),
    ],
    text: Annotated[str | None, typer.Option(help="Column of the texts.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the task label.")] = None,
    private: Annotated[
        str | None, typer.Option(help="Columns of private attributes, with commas between.")
    ] = None,
    derive: Annotated[
        str | None,
        typer.Option(
            help="Attributes read off the texts: names, email, phone, number, words:FILE or a|b."
        ),
    ] = None,
    author: Annotated[str | None, typer.Option(help="Column of the author.")] = None,
    where: Annotated[
        str | None, typer.Option(help="Keep rows, as in \"language == 'en'\".")
    ] = None,
    encoder: Annotated[str, typer.Option(help="Name, folder or Hugging Face id.")] = "minilm",
    backend: Annotated[str, typer.Option(help="auto, torch, onnx or int8.")] = "auto",
    vectors: Annotated[str | None, typer.Option(help="Column of ready vectors.")] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="A TOML recipe: audit what this private encoder releases.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="auto, random, stratified, by_author or wasserstein.")
    ] = "auto",
    seeds: Annotated[int, typer.Option(help="How many splits to average over.")] = 5,
    attackers: Annotated[
        str | None, typer.Option(help="logistic, mlp, boosting, knn, kernel; all by default.")
    ] = None,
    bins: Annotated[
        list[str] | None, typer.Option(help="Cut a number, as in age=30,50. May be repeated.")
    ] = None,
    fail_over: Annotated[
        float | None,
        typer.Option(
            help="Exit with 1 when an attacker gains more than this over chance (95 % confidence)."
        ),
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no vectors on disk.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the report.")] = None,
    json: JsonFlag = False,
) -> None:
    """Measure what embeddings of your texts give away, and write a report."""
    from capelet.files import check_writable

    folder = out or Path("runs") / Path(data).stem
    check_writable(folder)
    _check_gate(fail_over, private, derive, data)
    corpus = _corpus(data, text, label, private, author, vectors, where)
    options = {
        "seeds": seeds,
        "split_kind": split,
        "attackers": _listed(attackers),
        "derived": _listed(derive),
        "bins": _bins(bins or []),
        "cache": not no_cache,
    }
    private_encoder = _private_encoder(corpus, recipe, encoder, backend)
    findings = _audit(corpus, private_encoder, options, quiet=json)
    from capelet.reports import write_report

    page = write_report(findings, folder)
    over = _over(findings, fail_over)
    _show(findings, page, over, fail_over, json)
    if over:
        raise typer.Exit(1)


def _check_gate(limit: float | None, private: str | None, derive: str | None, data: str) -> None:
    """A gate that nothing can trip is a mistake, not a pass."""
    from capelet.datasets import DATASETS

    if limit is None:
        return
    if not 0 <= limit < 1:
        raise DataError(f"--fail-over is a gain in balanced accuracy from 0 to 1, and is {limit:g}")
    known = DATASETS[data].private if data in DATASETS else ()
    if not (private or derive or known):
        raise DataError(
            "--fail-over needs an attribute to watch: name it with --private or --derive"
        )


def _private_encoder(
    corpus: Corpus, recipe: Path | None, encoder: str, backend: str
) -> PrivateEncoder:
    from capelet.encoders import load
    from capelet.release import PrivateEncoder

    if recipe is not None:
        return PrivateEncoder.from_recipe(recipe)
    return PrivateEncoder(load(encoder, backend)) if corpus.vectors is None else PrivateEncoder()


def _audit(
    corpus: Corpus, private: PrivateEncoder, options: dict[str, Any], quiet: bool
) -> Findings:
    from dataclasses import replace

    from capelet.audit import audit as run
    from capelet.evaluation.plan import Plan

    # Everything that can be wrong with the data is said before a model is read.
    plan = Plan.of(corpus, 1, options["split_kind"], options["derived"], options["bins"])
    for warning in plan.advance(private.guarantee):
        print(f"capelet: warning: {warning}", file=sys.stderr)
    with _progress(quiet) as progress:
        findings = run(corpus, private, progress=progress, **options)
    command = shlex.join(["capelet", *sys.argv[1:]])
    return replace(findings, provenance={**findings.provenance, "command": command})


def _corpus(
    data: str,
    text: str | None,
    label: str | None,
    private: str | None,
    author: str | None,
    vectors: str | None,
    where: str | None,
) -> Corpus:
    from capelet.corpus import read
    from capelet.datasets import DATASETS, load

    named = any(item is not None for item in (text, label, private, author, vectors))
    if data in DATASETS and not Path(data).exists():
        if named:
            raise DataError(
                f"the set {data!r} knows its own columns; give its file to choose others"
            )
        return load(data, where=where)
    if not Path(data).suffix and not Path(data).exists():
        raise DataError(f"there is no file and no set {data!r}; {did_you_mean(data, DATASETS)}")
    return read(
        data,
        text=text,
        label=label,
        private=_listed(private),
        author=author,
        vectors=vectors,
        where=where,
    )


def _listed(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _bins(given: list[str]) -> dict[str, list[float]]:
    made = {}
    for item in given:
        name, _, edges = item.partition("=")
        try:
            made[name.strip()] = [float(edge) for edge in edges.split(",")]
        except ValueError:
            raise DataError(f"--bins {item!r} is not understood; write age=30,50") from None
    return made


def _over(findings: Findings, limit: float | None) -> list[str]:
    """The attributes whose attacker gains more than the limit, with 95 % confidence."""
    if limit is None:
        return []
    rows = findings.select(
        kind="attribute-inference", attacker="strongest", metric="balanced_accuracy"
    )
    return [
        row.target
        for row in rows
        if row.low is not None and row.chance is not None and row.low - row.chance > limit
    ]


def _show(
    findings: Findings, page: Path, over: list[str], limit: float | None, as_json: bool
) -> None:
    from capelet.reports import verdicts

    said = verdicts(findings)
    if as_json:
        summary = {
            "report": str(page),
            "findings": str(page.parent / "findings.json"),
            "verdicts": [
                {"target": item.target, "level": item.level, "sentence": item.sentence}
                for item in said
            ],
            "over": over,
        }
        print(jsonlib.dumps(summary, ensure_ascii=False))
        return
    for item in said:
        print(f"[{item.level}] {item.sentence}")
    for warning in findings.provenance.get("warnings", []):
        print(f"warning: {warning}")
    if limit is not None and not over:
        print(f"gate: no attribute's attacker gains more than {limit:g} over chance")
    if over:
        print(f"gate: over {limit:g} above chance with 95 % confidence: {', '.join(over)}")
    print(f"report: {page}")


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """A bar on standard error for each kind of long work, shown once it takes two seconds."""
    import time

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    bars = Bars(*columns, console=console, disable=quiet or not console.is_terminal)
    tasks: dict[str, Any] = {}
    began = time.monotonic()

    def progress(what: str, done: int, total: int) -> None:
        if what not in tasks:
            if done >= total or (time.monotonic() - began < 2 and done == 0):
                return
            tasks[what] = bars.add_task(what, total=total)
        bars.update(tasks[what], completed=done, total=total)

    with bars:
        yield progress


@app.command(
    epilog="Example: `capelet encode mails.parquet out.parquet --text body --recipe private.toml`"
)
@sentences
def encode(
    source: Annotated[Path, typer.Argument(help="A Parquet, CSV or JSONL file of any size.")],
    target: Annotated[Path, typer.Argument(help="The Parquet file of released vectors.")],
    recipe: Annotated[Path, typer.Option(help="A TOML recipe of the private encoder.")],
    text: Annotated[str | None, typer.Option(help="Column of the texts.")] = None,
    vectors: Annotated[str | None, typer.Option(help="Column of ready vectors.")] = None,
    subject: Annotated[str | None, typer.Option(help="Column of whom a row is about.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="File in which subjects are charged.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="The most ε that a subject may cost.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw again, and pay again, for texts released before.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the target.")] = False,
    json: JsonFlag = False,
) -> None:
    """Release a file's vectors; all rows and budgets are checked before any noise is drawn."""
    from capelet.batch import encode as run
    from capelet.release import PrivateEncoder

    private = PrivateEncoder.from_recipe(recipe)
    with _progress(json) as progress:
        done = run(
            source,
            target,
            private,
            text=text,
            vectors=vectors,
            subject=subject,
            ledger=ledger,
            budget=budget,
            fresh=fresh,
            overwrite=overwrite,
            progress=progress,
        )
    summary = {"target": str(done.target), "rows": done.rows, "drawn": done.drawn}
    print(jsonlib.dumps(summary) if json else f"{done.sentence()}\nreleased: {done.target}")


@app.command(epilog="Example: `capelet verify --recipe private.toml`")
@sentences
def verify(
    recipe: Annotated[Path, typer.Option(help="A TOML recipe of the private encoder.")],
    samples: Annotated[int, typer.Option(help="Outputs drawn of each input.")] = 1_000_000,
    confidence: Annotated[float, typer.Option(help="How sure a refutation must be.")] = 0.999,
    specimens: Annotated[
        bool, typer.Option("--specimens", help="Allow known-broken steps, to see them fail.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Try to refute the guarantee of each noise step; exit with 1 when one is refuted."""
    from capelet.release import PrivateEncoder
    from capelet.verify import verify_recipe

    private = PrivateEncoder.from_recipe(recipe, specimens=specimens)
    with _progress(json) as progress:
        judged = verify_recipe(private, samples, confidence=confidence, progress=progress)
    if json:
        print(jsonlib.dumps([verdict.describe() for verdict in judged], ensure_ascii=False))
    else:
        for verdict in judged:
            print(f"[{'stands' if verdict.passed else 'refuted'}] {verdict.sentence}")
    if not all(verdict.passed for verdict in judged):
        raise typer.Exit(1)


@app.command(epilog="Example: `capelet report runs/before runs/after --out runs/compared`")
@sentences
def report(
    run: Annotated[Path, typer.Argument(help="A folder that an audit wrote.")],
    other: Annotated[Path | None, typer.Argument(help="A second one, to compare with.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; the (second) run itself.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write the report of a run again, or of two runs side by side."""
    from capelet.files import check_writable
    from capelet.findings import Findings
    from capelet.reports import write_comparison, write_report

    first = Findings.load(run)
    second = Findings.load(other) if other is not None else None
    folder = out or other or run
    check_writable(folder)
    page = (
        write_report(first, folder) if second is None else write_comparison(first, second, folder)
    )
    print(jsonlib.dumps({"report": str(page)}) if json else f"report: {page}")


@app.command(name="list", epilog="Example: `capelet list --json`")
@sentences
def list_(json: JsonFlag = False) -> None:
    """What there is, one line each: encoders, mechanisms, data sets, attackers, splits."""
    from capelet.attacks.attribute import FAMILIES
    from capelet.datasets import DATASETS, found
    from capelet.encoders import ENCODERS
    from capelet.mechanisms import MECHANISMS
    from capelet.splits import SPLITS

    def first_line(thing: object) -> str:
        return (thing.__doc__ or "").strip().splitlines()[0]

    rooms = {
        "encoders": dict(ENCODERS),
        "mechanisms": {name: first_line(step) for name, step in MECHANISMS.items()},
        "data sets": {
            name: f"{about.title} ({'here' if found(name) else 'not here'}; {about.licence})"
            for name, about in DATASETS.items()
        },
        "attackers": {name: first_line(type(family)) for name, family in FAMILIES.items()},
        "splits": {name: first_line(kind) for name, kind in SPLITS.items()},
    }
    if json:
        print(jsonlib.dumps(rooms, ensure_ascii=False))
        return
    for room, things in rooms.items():
        print(room)
        for name, line in things.items():
            print(f"  {name:<20}{line}")


@cache_app.command(name="clear", epilog="Example: `capelet cache clear`")
@sentences
def cache_clear(json: JsonFlag = False) -> None:
    """Forget all cached vectors."""
    from capelet.encoders import clear_cache

    freed = clear_cache()
    print(jsonlib.dumps({"bytes": freed}) if json else f"forgot {freed / 1e6:.1f} MB of vectors")


@cache_app.command(name="where", epilog="Example: `capelet cache where`")
@sentences
def cache_where(json: JsonFlag = False) -> None:
    """Say where the cache is."""
    from capelet.files import cache_folder

    print(jsonlib.dumps({"folder": str(cache_folder())}) if json else str(cache_folder()))
