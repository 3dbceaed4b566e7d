"""What the commands share: the app, sentences instead of tracebacks, progress, reading data."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from capelet.errors import CapeletError, DataError, did_you_mean

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
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

# What several commands ask for, each described once.
DataArgument = Annotated[
    str,
    typer.Argument(help="A Parquet, CSV or JSONL file, a datasets folder, or a set."),
]
TextColumn = Annotated[str | None, typer.Option(help="Column of the texts.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column of the task label.")]
PrivateColumns = Annotated[
    str | None, typer.Option(help="Columns of private attributes, with commas between.")
]
Derived = Annotated[
    str | None,
    typer.Option(
        help="Read off the texts: names, email, phone, number, words:FILE or a|b as attributes; "
        "topics as the task."
    ),
]
AuthorColumn = Annotated[str | None, typer.Option(help="Column of the author.")]
Where = Annotated[str | None, typer.Option(help="Keep rows, as in \"language == 'en'\".")]
EncoderName = Annotated[str, typer.Option(help="Name, folder or Hugging Face id.")]
Backend = Annotated[str, typer.Option(help="auto, torch, onnx or int8.")]
VectorColumn = Annotated[str | None, typer.Option(help="Column of ready vectors.")]
SplitKind = Annotated[str, typer.Option(help="auto, random, stratified, by_author or wasserstein.")]
Seeds = Annotated[int, typer.Option(help="How many splits to average over.")]
Attackers = Annotated[
    str | None, typer.Option(help="logistic, mlp, boosting, knn, kernel; all by default.")
]
Bins = Annotated[
    list[str] | None, typer.Option(help="Cut a number, as in age=30,50. May be repeated.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Keep no vectors on disk.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


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


def corpus_of(
    data: str,
    text: str | None,
    label: str | None,
    private: str | None,
    author: str | None,
    vectors: str | None,
    where: str | None,
) -> Corpus:
    from capelet.data.datasets import DATASETS, load
    from capelet.data.readers import read

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
        private=listed(private),
        author=author,
        vectors=vectors,
        where=where,
    )


def listed(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def bins_of(given: list[str]) -> dict[str, list[float]]:
    made = {}
    for item in given:
        name, _, edges = item.partition("=")
        try:
            made[name.strip()] = [float(edge) for edge in edges.split(",")]
        except ValueError:
            raise DataError(f"--bins {item!r} is not understood; write age=30,50") from None
    return made


def private_encoder_of(
    corpus: Corpus, recipe: Path | None, encoder: str, backend: str
) -> PrivateEncoder:
    from capelet.encoders import load
    from capelet.release import PrivateEncoder, is_private_encoder

    if recipe is not None:
        return PrivateEncoder.from_recipe(recipe)
    if corpus.vectors is None and is_private_encoder(encoder):
        return PrivateEncoder(encoder)
    return PrivateEncoder(load(encoder, backend)) if corpus.vectors is None else PrivateEncoder()


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Progress]:
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
