"""`capelet protect`: train an encoder that keeps the task and loses the writer."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from capelet.cli.doors import Data, Group, Json
from capelet.cli.inputs import (
    open_encoder,
    read_corpus,
    split_columns,
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
from capelet.question import (
    ColumnNames,
    Columns,
    Network,
    Protocol,
    Search,
    Source,
    Training,
    chosen,
)

if TYPE_CHECKING:
    from capelet.defences import Settings
    from capelet.workflows.protect import Protection


def protect(
    data: Data,
    /,
    *,
    out: Annotated[Path, Group.OUTPUT, "Folder of the private encoder and its report."],
    method: Annotated[str | None, Group.PROTECT, "By default gr+; {defences:or}."] = None,
    purpose: Annotated[
        str | None, Group.PROTECT, "What is released, to choose the method by: {uses:or}."
    ] = None,
    columns: Annotated[Columns, Group.DATA],
    hold_out: Annotated[
        ColumnNames, Group.PROTECT, "Private attribute that training may not see. As --private."
    ] = (),
    protocol: Annotated[Protocol, Group.MEASURE],
    source: Annotated[Source, Group.DATA, "encoder backend cache"],
    training: Annotated[Training, Group.PROTECT],
    network: Annotated[Network, Group.PAPERS],
    search: Annotated[Search, Group.PROTECT],
    json: Json = False,
) -> None:
    """Train a private encoder; measure before and after with fresh attackers; write a report.

    Example: `capelet protect mails.parquet --text body --label topic --private gender,age
    --purpose task --epsilon 8 --out private/mails`
    """
    from capelet.files import check_writable
    from capelet.workflows.protect import protect as run
    from capelet.workflows.settings_choice import TargetNotMet

    check_writable(out)
    _check_free(out)
    name, base = method, None
    if purpose is not None:
        name, base = _propose(purpose, method, training)
    corpus = read_corpus(data, columns, protocol.split)
    plain = open_encoder(corpus, source)
    # Only what was chosen: the defaults of all else stand where the question is decided.
    parts = (training, network, search, protocol)
    choices = {key: value for part in parts for key, value in chosen(part).items()}
    if name is not None:
        choices["method"] = name
    if hold_out:
        choices["hold_out"] = split_columns(hold_out, list(corpus.private))
    try:
        with progress_bars(json) as progress:
            result = run(
                corpus, plain, settings=base, cache=source.cache, progress=progress, **choices
            )
    # Not bad input but a finding: 1, not 2.
    except TargetNotMet as error:
        echo(f"capelet: {error.spell('terminal')}", file=sys.stderr)
        raise SystemExit(1) from None
    _write(result, out, json)


def _propose(purpose: str, method: str | None, training: Training) -> tuple[str, Settings]:
    """The method for this use and its settings; the reason is on the terminal before the work."""
    from capelet.defences import propose

    if method is not None or training.keep is not None:
        raise CapeletError(
            "--purpose chooses the method and what it keeps; leave --method and --keep out, or "
            "leave --purpose out"
        )
    proposal = propose(purpose)
    echo(f"capelet: for {purpose} take {proposal.method}: {proposal.reason}", file=sys.stderr)
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
