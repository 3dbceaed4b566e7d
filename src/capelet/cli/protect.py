"""`capelet protect`: train an encoder that keeps the task and loses the writer."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import typer

from capelet.cli import options
from capelet.cli.inputs import (
    Columns,
    Reading,
    open_encoder,
    parse_bins,
    parse_seeds,
    parse_weight,
    read_corpus,
    split_columns,
    split_names,
)
from capelet.cli.terminal import (
    echo,
    print_json,
    print_leaves,
    print_verdicts,
    progress_bars,
    with_command,
)
from capelet.errors import CapeletError, OutputError

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
    from capelet.defences import Settings
    from capelet.defences.settings import TrainingPrivacy
    from capelet.workflows.protect import Protection

# What is taken where neither a method nor a use is named.
METHOD = "gr+"
# A width other than this was chosen by the user, and is not searched.
WIDTH = 64


def protect(
    data: options.Data,
    out: options.OutProtected,
    method: options.Method = None,
    use: options.Use = None,
    text: options.Text = None,
    label: options.Label = None,
    private: options.Private = None,
    hold_out: options.HoldOut = None,
    derive: options.Derive = None,
    author: options.Author = None,
    where: options.Where = None,
    drop_empty: options.DropEmpty = False,
    merge_rare: options.MergeRare = None,
    encoding: options.Encoding = None,
    separator: options.Separator = None,
    bins: options.Bins = None,
    encoder: options.Encoder = "minilm",
    backend: options.Backend = "auto",
    vectors: options.Vectors = None,
    epsilon: options.Epsilon = None,
    adversary_weight: options.AdversaryWeight = None,
    train_epsilon: options.TrainEpsilon = None,
    train_delta: options.TrainDelta = None,
    unit: options.TrainUnit = "text",
    word_dropout: options.WordDropout = 0.5,
    width: options.MapWidth = WIDTH,
    adversary_loss: options.AdversaryLoss = "reversal",
    preset: options.Preset = None,
    batch: options.BatchRows = None,
    rate: options.LearningRate = None,
    epochs: options.MostEpochs = None,
    head_units: options.HeadUnits = None,
    dropout: options.Dropout = None,
    table: options.WordTable = None,
    keep: options.Keep = "auto",
    tune_layers: options.TuneLayers = 0,
    max_leakage: options.MaxLeakage = None,
    min_utility: options.MinUtility = None,
    trials: options.Trials = 20,
    allow_useless_epsilon: options.AllowUselessEpsilon = False,
    split: options.Split = "auto",
    seeds: options.Seeds = "3",
    attackers: options.Attackers = None,
    seeded_noise: options.SeededRelease = False,
    threads: options.Threads = None,
    metrics: options.Metrics = None,
    no_cache: options.NoCache = False,
    json: options.Json = False,
) -> None:
    """Train a private encoder; measure before and after with fresh attackers; write a report.

    Example: `capelet protect mails.parquet --text body --label topic --private gender,age
    --purpose task --epsilon 8 --out private/mails`
    """
    from capelet.data.official import column_of
    from capelet.defences import Settings, with_choices
    from capelet.files import check_writable
    from capelet.workflows.protect import protect as run
    from capelet.workflows.settings_choice import TargetNotMet

    check_writable(out)
    _check_free(out)
    training = _training_privacy(train_epsilon, train_delta, unit)
    choices: dict[str, Any] = {
        "batch": batch, "rate": rate, "epochs": epochs, "head_units": head_units,
        "dropout": dropout, "width": width if width != WIDTH else None,
    }  # fmt: skip
    settings = with_choices(
        Settings(
            epsilon, parse_weight(adversary_weight), word_dropout, width, keep,
            tune_layers=tune_layers, training=training, table=table or Settings().table,
            adversary_loss=adversary_loss,
        ),
        preset,
        choices,
    )  # fmt: skip
    name = method or METHOD
    if use is not None:
        name, settings = _propose(use, method, settings)
    _check_options(name, {**choices, "table": table}, training)
    reading = Reading(where, drop_empty, merge_rare, encoding, separator)
    names = tuple(private or ())
    columns = Columns(text, label, names, author, vectors, column_of(split))
    corpus = read_corpus(data, columns, reading)
    if settings.keep == "auto":
        settings = replace(settings, keep=_what_to_keep(corpus, split_names(derive), name))
    search: dict[str, Any] = {
        "max_leakage": max_leakage,
        "min_utility": min_utility,
        "trials": trials,
        "allow_useless_epsilon": allow_useless_epsilon,
        "fixed": _fixed_settings(epsilon, adversary_weight, width, preset),
    }
    measuring: dict[str, Any] = {
        "hold_out": split_columns(hold_out, list(corpus.private)),
        "seeds": parse_seeds(seeds),
        "split": split,
        "attackers": split_names(attackers),
        "derive": split_names(derive),
        "bins": parse_bins(bins),
        "seeded_noise": seeded_noise,
        "threads": threads,
        "metrics": split_names(metrics),
        "cache": not no_cache,
    }
    plain = open_encoder(corpus, None, encoder, backend)
    try:
        with progress_bars(json) as progress:
            result = run(corpus, plain, name, settings, progress=progress, **search, **measuring)
    # Not bad input but a finding: 1, not 2.
    except TargetNotMet as error:
        echo(f"capelet: {error.spell('terminal')}", file=sys.stderr)
        raise typer.Exit(1) from None
    _write(result, out, json)


def _propose(use: str, method: str | None, settings: Settings) -> tuple[str, Settings]:
    """The method for this use and its settings; the reason is on the terminal before the work."""
    from capelet.defences import propose

    if method is not None or settings.keep != "auto":
        raise CapeletError(
            "--purpose chooses the method and what it keeps; leave --method and --keep out, or "
            "leave --purpose out"
        )
    proposal = propose(use, settings)
    echo(f"capelet: for {use} take {proposal.method}: {proposal.reason}", file=sys.stderr)
    return proposal.method, proposal.settings


def _check_free(out: Path) -> None:
    """Refuse a folder that holds a private encoder: vectors may be out that only it explains."""
    from capelet.encoders.model_folder import holds_model

    if holds_model(out):
        raise OutputError(
            f"{str(out)!r} holds a trained model already, which would be lost; choose another "
            "folder with --out, or remove that one"
        )


def _what_to_keep(corpus: Corpus, derive: list[str], method: str) -> str:
    """The task where there is one, or where the method knows nothing else to keep."""
    from capelet.data.labels import makes_task
    from capelet.defences import METHODS

    task = corpus.label is not None or any(map(makes_task, derive))
    record = METHODS.get(method)  # `protect` refuses a name that is in no table
    can_keep_neighbours = record is not None and "neighbours" in record.keeps
    return "task" if task or not can_keep_neighbours else "neighbours"


def _training_privacy(
    epsilon: float | None, delta: float | None, unit: str
) -> TrainingPrivacy | None:
    """What the training must promise; an option of it without its ε is a mistake."""
    from capelet.defences.settings import TrainingPrivacy

    if epsilon is None:
        if delta is not None or unit != "text":
            raise CapeletError("--train-delta and --unit belong to --train-epsilon; give that too")
        return None
    return TrainingPrivacy(epsilon, delta, cast("Literal['text', 'author']", unit))


def _check_options(method: str, choices: dict[str, Any], training: TrainingPrivacy | None) -> None:
    """Refuse options that the training would not read; a preset's values are no such wish."""
    from capelet.defences import check_options

    names = [name for name, value in choices.items() if value is not None and name != "width"]
    if training is not None and {"batch", "rate", "epochs"} & {*names}:
        raise CapeletError(
            "a private training has a schedule of its own, for which its noise is reckoned; leave "
            "--batch, --rate and --epochs out"
        )
    check_options(method, names)


def _fixed_settings(
    epsilon: float | None, adversary_weight: str | None, width: int, preset: str | None
) -> list[str]:
    """The settings that the user chose; a search leaves them alone."""
    is_given = {
        "epsilon": epsilon is not None,
        "adversary_weight": adversary_weight is not None,
        "width": width != WIDTH or preset is not None,
    }
    return [name for name, by_user in is_given.items() if by_user]


def _write(result: Protection, out: Path, as_json: bool) -> None:
    from capelet.encoders.model_folder import claim_folder
    from capelet.reports import verdicts, what_leaves, write_protection

    result = replace(result, after=with_command(result.after))
    # The page before the encoder, whose manifest makes the folder a whole one.
    page = write_protection(result.before, result.after, claim_folder(out))
    folder = result.save(out)
    promise = result.encoder.guarantee.sentence()
    leaves = what_leaves(result.after)
    before, after = verdicts(result.before), verdicts(result.after)
    if as_json:
        summary = {
            "encoder": str(folder),
            "report": str(page),
            "leaves": leaves,
            "guarantee": promise,
            "before": [{"target": item.target, "sentence": item.sentence} for item in before],
            "after": [{"target": item.target, "sentence": item.sentence} for item in after],
        }
        print_json(summary)
        return
    print_leaves(leaves)
    for name, sentences in (("before", before), ("after", after)):
        print_verdicts(sentences, f"{name} ")
    echo(f"guarantee: {promise}")
    echo(f"private encoder: {folder}")
    if result.after.provenance["protect"]["private_towards_training_texts"]:
        echo("ship what manifest.json names: no ε covers the figures in the report and findings")
    echo(f"report: {page}")
