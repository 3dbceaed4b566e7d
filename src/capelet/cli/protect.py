"""`capelet protect`: train an encoder that keeps the task and loses the writer."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from capelet.question import Network, Training, chosen

if TYPE_CHECKING:
    from capelet.defences import Settings
    from capelet.workflows.protect import Protection

# What is taken where neither a method nor a use is named.
METHOD = "gr+"


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
    unit: options.TrainUnit = None,
    word_dropout: options.WordDropout = None,
    width: options.MapWidth = None,
    adversary_loss: options.AdversaryLoss = None,
    preset: options.Preset = None,
    batch: options.BatchRows = None,
    rate: options.LearningRate = None,
    epochs: options.MostEpochs = None,
    head_units: options.HeadUnits = None,
    dropout: options.Dropout = None,
    table: options.WordTable = None,
    keep: options.Keep = None,
    tune_layers: options.TuneLayers = None,
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
    from capelet.defences import check_choices
    from capelet.files import check_writable
    from capelet.workflows.protect import protect as run
    from capelet.workflows.settings_choice import TargetNotMet

    check_writable(out)
    _check_free(out)
    training = Training(
        epsilon, parse_weight(adversary_weight), adversary_loss, keep, word_dropout, table,
        tune_layers=tune_layers, train_epsilon=train_epsilon, train_delta=train_delta, unit=unit,
    )  # fmt: skip
    network = Network(preset, width, head_units, dropout, batch, rate, epochs)
    name, base = method or METHOD, None
    if use is not None:
        name, base = _propose(use, method, training)
    check_choices(name, training, network)
    reading = Reading(where, drop_empty, merge_rare, encoding, separator)
    names = tuple(private or ())
    columns = Columns(text, label, names, author, vectors, column_of(split))
    corpus = read_corpus(data, columns, reading)
    search: dict[str, Any] = {
        "max_leakage": max_leakage,
        "min_utility": min_utility,
        "trials": trials,
        "allow_useless_epsilon": allow_useless_epsilon,
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
            result = run(
                corpus, plain, name, base, progress=progress,
                **search, **measuring, **chosen(training), **chosen(network),
            )  # fmt: skip
    # Not bad input but a finding: 1, not 2.
    except TargetNotMet as error:
        echo(f"capelet: {error.spell('terminal')}", file=sys.stderr)
        raise typer.Exit(1) from None
    _write(result, out, json)


def _propose(use: str, method: str | None, training: Training) -> tuple[str, Settings]:
    """The method for this use and its settings; the reason is on the terminal before the work."""
    from capelet.defences import propose

    if method is not None or training.keep is not None:
        raise CapeletError(
            "--purpose chooses the method and what it keeps; leave --method and --keep out, or "
            "leave --purpose out"
        )
    proposal = propose(use)
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
