"""`capelet lm train` and `capelet lm attack`: language models, and what they remember."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from capelet.cli.shared import (
    AuthorColumn,
    DataArgument,
    JsonFlag,
    TextColumn,
    Where,
    app,
    corpus_of,
    listed,
    progress_bars,
    sentences,
)
from capelet.errors import DataError

lm_app = typer.Typer(no_args_is_help=True, help="Private language models, and attacks on them.")
app.add_typer(lm_app, name="lm")

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


@lm_app.command(
    epilog="Example: `capelet lm train mails.parquet --text body --author sender "
    "--method dpsgd --epsilon 8 --out models/mails`"
)
@sentences
def train(
    data: DataArgument,
    out: Annotated[Path, typer.Option(help="Folder of the model.")],
    text: TextColumn = None,
    author: AuthorColumn = None,
    where: Where = None,
    method: Annotated[str, typer.Option(help="none, adversarial, triplet or dpsgd.")] = "none",
    network: Annotated[str, typer.Option(help="lstm or transformer.")] = "lstm",
    vocabulary: Annotated[int, typer.Option(help="How many words the model knows.")] = 10_000,
    words: Annotated[
        Path | None, typer.Option(help="A public list of words instead, one per line.")
    ] = None,
    width: Annotated[int, typer.Option(help="Size of word vectors and states.")] = 256,
    layers: Annotated[int, typer.Option(help="Layers of the network.")] = 2,
    length: Annotated[int, typer.Option(help="Words of a text that are read.")] = 20,
    epochs: Annotated[int, typer.Option(help="Times that all texts are seen.")] = 10,
    batch: Annotated[int, typer.Option(help="Texts per step.")] = 100,
    rate: Annotated[float, typer.Option(help="Learning rate of Adam.")] = 1e-3,
    batching: Annotated[
        str, typer.Option(help="uniform, author or grouped; dpsgd samples by itself.")
    ] = "grouped",
    strength: Annotated[float, typer.Option(help="λ of adversarial and triplet.")] = 4.0,
    position: Annotated[
        str, typer.Option(help="The state that is kept from authors: random (prefix) or last.")
    ] = "random",
    epsilon: Annotated[float | None, typer.Option(help="The ε that dpsgd must keep.")] = None,
    delta: Annotated[float | None, typer.Option(help="Its δ; 1/(2n) by default.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="The noise of dpsgd instead of its ε.")
    ] = None,
    clip: Annotated[float, typer.Option(help="The longest gradient of one text.")] = 1.0,
    unit: Annotated[str, typer.Option(help="What ε covers: record. Authors are refused.")] = (
        "record"
    ),
    canaries: Annotated[
        str | None, typer.Option(help="Insert made-up secrets, so often each: 1,5,20,50.")
    ] = None,
    canary_authors: Annotated[
        int | None, typer.Option(help="Authors per number of repetitions; all of them.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the split, the weights and the batches.")] = 0,
    seeded_noise: Annotated[
        bool, typer.Option("--seeded-noise", help="Repeatable noise, for studies: no guarantee.")
    ] = False,
    device: Device = "auto",
    json: JsonFlag = False,
) -> None:
    """Train a language model on people's texts; run it again to go on where it was interrupted."""
    from capelet.language.folders import sentence_of
    from capelet.workflows.language import (
        CanarySettings,
        LanguageSettings,
        MethodSettings,
        NetworkSettings,
        ScheduleSettings,
        train_model,
    )

    texts, authors, _ = _texts_and_authors(data, text, author, where)

    settings = LanguageSettings(
        NetworkSettings(
            network, vocabulary if words is None else _word_list(words), width, layers, length
        ),
        ScheduleSettings(epochs, batch, rate, batching, seed, device),
        MethodSettings(
            method, strength, position, epsilon, delta, noise_multiplier, clip, unit, seeded_noise
        ),
        CanarySettings(_repetitions(canaries), canary_authors),
    )

    def on_epoch(row: dict[str, float]) -> None:
        if not json:
            line = f"epoch {row['epoch']:.0f} of {epochs}: perplexity {row['perplexity']:.1f}"
            print(f"{line} ({row['seconds']:.0f} s)", file=sys.stderr)

    with _resumable(out), progress_bars(json) as progress:
        model = train_model(texts, authors, out, settings, progress=progress, on_epoch=on_epoch)
    perplexity = model.training["test_perplexity"]
    promise = sentence_of(model.guarantee)
    if json:
        summary = {"model": str(out), "test_perplexity": perplexity, "guarantee": promise}
        print(jsonlib.dumps(summary, ensure_ascii=False))
        return
    print(f"test perplexity: {perplexity:.1f}")
    print(f"guarantee: {promise}")
    if model.canaries:
        print("this model holds canaries: measure it, do not use it")
    print(f"model: {out}")


@lm_app.command(
    epilog="Example: `capelet lm attack models/mails --data mails.parquet --text body "
    "--author sender --out runs/mails-lm`"
)
@sentences
def attack(
    model: Annotated[Path, typer.Argument(help="A folder that `capelet lm train` wrote.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; the model's folder.")] = None,
    data: Annotated[
        str | None, typer.Option(help="The texts it was trained on, for the other attacks.")
    ] = None,
    text: TextColumn = None,
    author: AuthorColumn = None,
    where: Where = None,
    subgroups: Annotated[
        str | None, typer.Option(help="Columns whose classes are looked at apart.")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="A model trained on other texts, for membership.")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="A model without privacy, for the drop per author.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Random sequences that rank a canary.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Of what the attacker draws.")] = 0,
    device: Device = "auto",
    json: JsonFlag = False,
) -> None:
    """Try to get training texts out of a model: canaries, tab attack, membership, per author."""
    from dataclasses import replace

    from capelet.files import check_writable
    from capelet.reports import write_report
    from capelet.reports.language import model_sentences
    from capelet.workflows.language import AttackSettings, TrainingTexts, attack_model

    folder = out or model
    check_writable(folder)
    rows = None if data is None else _texts_and_authors(data, text, author, where, subgroups)
    with progress_bars(json) as progress:
        findings = attack_model(
            model,
            TrainingTexts(*rows) if rows else None,
            AttackSettings(samples, seed, device),
            reference=reference,
            baseline=baseline,
            progress=progress,
        )
    command = shlex.join(["capelet", *sys.argv[1:]])
    findings = replace(findings, provenance={**findings.provenance, "command": command})
    page = write_report(findings, folder)
    said = model_sentences(findings)
    if json:
        summary: dict[str, Any] = {"report": str(page), "sentences": said}
        print(jsonlib.dumps(summary, ensure_ascii=False))
        return
    for sentence in said:
        print(sentence)
    print(f"report: {page}")


@contextmanager
def _resumable(out: Path) -> Iterator[None]:
    """Interrupted training keeps its checkpoint, and says so."""
    try:
        yield
    except KeyboardInterrupt:
        print(
            f"capelet: stopped; whole epochs are kept in {str(out)!r}: run the same command again "
            "to go on",
            file=sys.stderr,
        )
        raise typer.Exit(130) from None


def _texts_and_authors(
    data: str,
    text: str | None,
    author: str | None,
    where: str | None,
    subgroups: str | None = None,
) -> tuple[list[str], list[str] | None, dict[str, list[Any]]]:
    corpus = corpus_of(data, text, None, subgroups, author, None, where)
    if corpus.texts is None:
        raise DataError(f"{corpus.name!r} holds no texts; name their column with --text")
    groups = {name: values.tolist() for name, values in corpus.private.items()}
    authors = None if corpus.author is None else corpus.author.tolist()
    return corpus.texts.tolist(), authors, groups


def _repetitions(given: str | None) -> list[int]:
    try:
        return [int(item) for item in listed(given)]
    except ValueError:
        raise DataError(f"--canaries {given!r} is not understood; write 1,5,20,50") from None


def _word_list(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the list of words {str(path)!r} cannot be read ({type(error).__name__})"
        ) from None
