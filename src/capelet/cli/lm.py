"""`capelet lm train` and `capelet lm attack`: language models, and what they remember."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from capelet.cli.doors import Data, Group, Json
from capelet.cli.inputs import read_texts
from capelet.cli.terminal import answer, echo, print_json, progress_bars, with_command
from capelet.errors import DataError
from capelet.question import (
    CanaryCounts,
    ColumnNames,
    Columns,
    Count,
    LanguageNetwork,
    LanguageSchedule,
    Mitigation,
    Seed,
)

if TYPE_CHECKING:
    from capelet.workflows.language import LanguageSettings


def train(
    data: Data,
    /,
    *,
    out: Annotated[Path, Group.OUTPUT, "Folder of the model."],
    columns: Annotated[Columns, Group.DATA, "text author where drop_empty encoding separator"],
    mitigation: Mitigation,
    model: Annotated[LanguageNetwork, "network vocabulary words width layers length"],
    schedule: Annotated[LanguageSchedule, "epochs batch rate batching seed device"],
    secrets: CanaryCounts,
    json: Json = False,
) -> None:
    """Train a language model on people's texts; run it again to go on where it was interrupted.

    Example: `capelet lm train mails.parquet --text body --author sender --method dpsgd
    --epsilon 8 --out models/mails`
    """
    from capelet.workflows.language import LanguageSettings

    texts, authors, _ = read_texts(data, columns)
    settings = LanguageSettings(model, schedule, mitigation, secrets)
    trained = _train(texts, authors, out, settings, json)
    _print_model(trained, out, json)
    if model.words is None and isinstance(model.vocabulary, int) and not json:
        _print_cap(trained, model.vocabulary)


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


def _print_cap(model: Any, size: int) -> None:
    """One line where the texts have fewer words than the vocabulary should have."""
    from capelet.language.vocabulary import SPECIAL

    count = len(model.vocabulary) - len(SPECIAL)
    if count < size:
        echo(
            f"capelet: the vocabulary is all {count:,} words of the training texts "
            f"({size:,} were asked for)",
            file=sys.stderr,
        )


def attack(
    model: Annotated[Path, "A folder that `capelet lm train` wrote."],
    /,
    *,
    out: Annotated[Path | None, Group.OUTPUT, "Where to write; the model's folder."] = None,
    data: Annotated[str | None, "The texts it was trained on, for the other attacks."] = None,
    columns: Annotated[
        Columns, Group.DATA, "text author where drop_empty merge_rare encoding separator"
    ],
    subgroups: Annotated[
        ColumnNames,
        Group.DATA,
        "Column whose classes are reported separately. As --private elsewhere.",
    ] = (),
    reference: Annotated[Path | None, "A model trained on other texts, for membership."] = None,
    baseline: Annotated[Path | None, "A model without privacy, for the drop per author."] = None,
    samples: Annotated[Count, "Random sequences that rank a canary."] = 20000,
    seed: Annotated[Seed, "Of what the attacker draws."] = 0,
    device: Annotated[str, "auto, cpu or cuda."] = "auto",
    json: Json = False,
) -> None:
    """Try to get training texts out of a model: canaries, tab attack, membership, per author.

    Example: `capelet lm attack models/mails --data mails.parquet --text body --author sender
    --out runs/mails-lm`
    """
    from capelet.evaluation.extraction import AttackSettings, TrainingTexts, attack_model
    from capelet.files import check_writable
    from capelet.language.folders import promise_in
    from capelet.reports import write_report
    from capelet.reports.language import model_sentences

    folder = out or model
    check_writable(folder)
    if data is not None and out is None and promise_in(model).notion != "none":
        raise DataError(
            "findings about the texts do not belong into the folder of a model that promises "
            "something and may be handed on; say with --out where they shall lie"
        )
    named = replace(columns, private=subgroups)
    rows = None if data is None else read_texts(data, named)
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
    answer(json, {"report": str(page), "sentences": sentences}, *sentences, f"report: {page}")


def compare(
    runs: Annotated[list[Path], "Folders that `capelet lm attack` wrote, two or more."],
    /,
    *,
    out: Annotated[Path, Group.OUTPUT, "Folder of the comparison."],
    json: Json = False,
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
    summary = {"report": str(page), "sentences": sentences, "warnings": warnings}
    notes = [f"warning: {item}" for item in warnings]
    answer(json, summary, *sentences, *notes, f"report: {page}")


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
        raise SystemExit(130) from None
