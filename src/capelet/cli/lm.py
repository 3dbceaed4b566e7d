"""`capelet lm train` and `capelet lm attack`: language models, and what they remember."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from capelet.cli import options
from capelet.cli.inputs import Columns, Reading, read_corpus, split_names
from capelet.cli.terminal import echo, print_json, progress_bars, with_command
from capelet.errors import DataError

if TYPE_CHECKING:
    from capelet.workflows.language import LanguageSettings


def train(
    data: options.Data,
    out: options.OutModel,
    text: options.Text = None,
    author: options.Author = None,
    where: options.Where = None,
    drop_empty: options.DropEmpty = False,
    encoding: options.Encoding = None,
    separator: options.Separator = None,
    method: options.ModelMethod = "none",
    network: options.ModelNetwork = "lstm",
    vocabulary: options.ModelVocabulary = 10_000,
    words: options.WordList = None,
    width: options.Width = 256,
    layers: options.Layers = 2,
    length: options.Length = 20,
    epochs: options.TextEpochs = 10,
    batch: options.TextBatch = 100,
    rate: options.ModelRate = 1e-3,
    batching: options.Batching = "grouped",
    strength: options.Strength = 4.0,
    position: options.Position = "random",
    epsilon: options.ModelEpsilon = None,
    delta: options.Delta = None,
    noise_multiplier: options.NoiseMultiplier = None,
    clip: options.Clip = 1.0,
    unit: options.Unit = "record",
    texts_per_author: options.TextsPerAuthor = None,
    canaries: options.Canaries = None,
    canary_authors: options.CanaryAuthors = None,
    seed: options.ModelSeed = 0,
    seeded_noise: options.SeededNoise = False,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Train a language model on people's texts; run it again to go on where it was interrupted.

    Example: `capelet lm train mails.parquet --text body --author sender --method dpsgd
    --epsilon 8 --out models/mails`
    """
    from capelet.workflows.language import (
        CanarySettings,
        LanguageSettings,
        MethodSettings,
        NetworkSettings,
        ScheduleSettings,
    )

    reading = Reading(where, drop_empty, None, encoding, separator)
    texts, authors, _ = _texts_and_authors(data, Columns(text=text, author=author), reading)
    settings = LanguageSettings(
        NetworkSettings(network, *_vocabulary(words, vocabulary, (width, layers, length))),
        ScheduleSettings(epochs, batch, rate, batching, seed, device),
        MethodSettings(
            method,
            strength,
            position,
            epsilon,
            delta,
            noise_multiplier,
            clip,
            unit,
            seeded_noise,
            texts_per_author,
        ),
        CanarySettings(_repetitions(canaries), canary_authors),
    )
    _print_model(_train(texts, authors, out, settings, json), out, json)


def _train(
    texts: list[str], authors: list[str] | None, out: Path, settings: LanguageSettings, quiet: bool
) -> Any:
    from capelet.workflows.language import train_model

    on_epoch = _epoch_printer(settings.schedule.epochs, quiet)
    with _resumable(out), progress_bars(quiet) as progress:
        return train_model(texts, authors, out, settings, progress=progress, on_epoch=on_epoch)


def _epoch_printer(epochs: int, quiet: bool) -> Callable[[dict[str, float]], None]:
    """A line on standard error after each epoch."""

    def tell(row: dict[str, float]) -> None:
        if not quiet:
            line = f"epoch {row['epoch']:.0f} of {epochs}: perplexity {row['perplexity']:.1f}"
            echo(f"{line} ({row['seconds']:.0f} s)", file=sys.stderr)

    return tell


def _print_model(model: Any, out: Path, as_json: bool) -> None:
    from capelet.language.folders import sentence_of

    perplexity = model.record.figures["test_perplexity"]
    promise = sentence_of(model.guarantee)
    if as_json:
        print_json({"model": str(out), "test_perplexity": perplexity, "guarantee": promise})
        return
    outside = " (exact, and outside the promise: for you)" if model.training["privacy"] else ""
    echo(f"test perplexity: {perplexity:.1f}{outside}")
    echo(f"guarantee: {promise}")
    if model.canaries:
        echo("this model holds canaries: measure it, do not use it")
    echo(f"model: {out}")


def attack(
    model: options.ModelFolder,
    out: options.OutOrModel = None,
    data: options.TrainingTexts = None,
    text: options.Text = None,
    author: options.Author = None,
    where: options.Where = None,
    drop_empty: options.DropEmpty = False,
    merge_rare: options.MergeRare = None,
    encoding: options.Encoding = None,
    separator: options.Separator = None,
    subgroups: options.Subgroups = None,
    reference: options.ReferenceModel = None,
    baseline: options.BaselineModel = None,
    samples: options.RandomSequences = 20_000,
    seed: options.ExtractionSeed = 0,
    device: options.Device = "auto",
    json: options.Json = False,
) -> None:
    """Try to get training texts out of a model: canaries, tab attack, membership, per author.

    Example: `capelet lm attack models/mails --data mails.parquet --text body --author sender
    --out runs/mails-lm`
    """
    from capelet.files import check_writable
    from capelet.language.folders import promise_in
    from capelet.reports import write_report
    from capelet.reports.language import model_sentences
    from capelet.workflows.language import AttackSettings, TrainingTexts, attack_model

    folder = out or model
    check_writable(folder)
    if data is not None and out is None and promise_in(model).notion != "none":
        raise DataError(
            "findings about the texts do not belong into the folder of a model that promises "
            "something and may be handed on; say with --out where they shall lie"
        )
    columns = Columns(text=text, private=tuple(subgroups or ()), author=author)
    reading = Reading(where, drop_empty, merge_rare, encoding, separator)
    rows = None if data is None else _texts_and_authors(data, columns, reading)
    with progress_bars(json) as progress:
        findings = attack_model(
            model,
            TrainingTexts(*rows) if rows else None,
            AttackSettings(samples, seed, device),
            reference=reference,
            baseline=baseline,
            progress=progress,
        )
    findings = with_command(findings)
    page = write_report(findings, folder)
    sentences = model_sentences(findings)
    if json:
        print_json({"report": str(page), "sentences": sentences})
        return
    for sentence in sentences:
        echo(sentence)
    echo(f"report: {page}")


def compare(
    runs: options.Runs,
    out: options.OutComparison,
    json: options.Json = False,
) -> None:
    """Put attacked language models side by side: exposure, tab attack, membership, perplexity.

    Example: `capelet lm compare runs/plain runs/triplet runs/dpsgd --out runs/compared`
    """
    from capelet.files import check_writable
    from capelet.findings import Findings
    from capelet.reports import drawn_from, write_report
    from capelet.reports.language import model_sentences
    from capelet.workflows.language import compare_models

    if out.resolve() in [run.resolve() for run in runs]:
        raise DataError("--out is one of the runs, whose findings would be lost; name another")
    check_writable(out)
    findings = compare_models([(run.resolve().name, Findings.load(run)) for run in runs])
    with drawn_from(runs[0]):
        page = write_report(with_command(findings), out)
    sentences = model_sentences(findings)
    warnings = findings.provenance["warnings"]
    if json:
        print_json({"report": str(page), "sentences": sentences, "warnings": warnings})
        return
    for sentence in (*sentences, *(f"warning: {item}" for item in warnings)):
        echo(sentence)
    echo(f"report: {page}")


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Interrupted training keeps its checkpoint, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        echo(
            f"capelet: stopped; whole epochs are kept in {str(out)!r}: run the same command again "
            "to go on",
            file=sys.stderr,
        )
        # What a shell gives for a program that was stopped by Ctrl-C (128 + SIGINT).
        raise typer.Exit(130) from None


def _texts_and_authors(
    data: str, columns: Columns, reading: Reading
) -> tuple[list[str], list[str] | None, dict[str, list[Any]]]:
    corpus = read_corpus(data, columns, reading)
    if corpus.texts is None:
        raise DataError(f"{corpus.name!r} holds no texts; name their column with --text")
    groups = {name: values.tolist() for name, values in corpus.private.items()}
    authors = None if corpus.author is None else corpus.author.tolist()
    return corpus.texts.tolist(), authors, groups


def _repetitions(canaries: str | None) -> list[int]:
    try:
        return [int(item) for item in split_names(canaries)]
    except ValueError:
        raise DataError(f"--canaries {canaries!r} is not understood; write 1,5,20,50") from None


def _vocabulary(words: str | None, size: int, shape: tuple[int, int, int]) -> tuple[Any, ...]:
    """What `NetworkSettings` takes after its kind: how many words or which, and from where."""
    from capelet.language.vocabulary import FROM_TEXTS, PUBLIC, THROUGH_NOISE

    if words is None:
        return size, *shape, FROM_TEXTS
    if words == THROUGH_NOISE or words.startswith(PUBLIC):
        return size, *shape, words
    return _word_list(Path(words)), *shape, FROM_TEXTS


def _word_list(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the list of words {str(path)!r} cannot be read ({type(error).__name__})"
        ) from None
