"""`capelet audit`: what do embeddings of these texts give away?"""

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
    member_flags,
    open_encoder,
    parse_bins,
    read_corpus,
    split_names,
)
from capelet.cli.terminal import print_json, print_trained, progress_bars, with_command
from capelet.errors import DataError

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
    from capelet.findings import Findings
    from capelet.release import PrivateEncoder


def audit(
    data: options.Data,
    text: options.Text = None,
    label: options.Label = None,
    private: options.Private = None,
    derive: options.Derive = None,
    author: options.Author = None,
    where: options.Where = None,
    drop_empty: options.DropEmpty = False,
    merge_rare: options.MergeRare = None,
    encoding: options.Encoding = None,
    separator: options.Separator = None,
    encoder: options.Encoder = "minilm",
    backend: options.Backend = "auto",
    vectors: options.Vectors = None,
    recipe: options.RecipeToAudit = None,
    split: options.Split = "auto",
    seeds: options.Seeds = 5,
    attacks: options.KindsOfAttack = "attributes",
    attackers: options.Attackers = None,
    member: options.MemberIfAny = None,
    show_texts: options.ShowInverted = False,
    bins: options.Bins = None,
    fail_over: options.FailOver = None,
    no_cache: options.NoCache = False,
    out: options.OutReport = None,
    json: options.Json = False,
) -> None:
    """Measure what embeddings of your texts give away, and write a report.

    Example: `capelet audit mails.parquet --text body --label topic --private gender,age
    --author sender --out runs/mails`
    """
    from capelet.files import check_writable
    from capelet.reports import write_report

    folder = out or Path("runs") / Path(data).stem
    check_writable(folder)
    _check_gate(fail_over, private, derive, data, split_names(attacks))
    columns = Columns(text, label, tuple(private or ()), author, vectors)
    reading = Reading(where, drop_empty, merge_rare, encoding, separator)
    corpus, members = _read_with_members(data, columns, reading, member)
    settings = {
        "attacks": split_names(attacks),
        "members": members,
        "show_texts": show_texts,
        "seeds": seeds,
        "split_kind": split,
        "attackers": split_names(attackers),
        "derived": split_names(derive),
        "bins": parse_bins(bins),
        "cache": not no_cache,
    }
    _check_attacks(corpus, settings)  # before a model is read
    findings = _measure(corpus, open_encoder(corpus, recipe, encoder, backend), settings, json)
    page = write_report(findings, folder)
    over = _over(findings, fail_over)
    _print(findings, page, over, fail_over, json)
    if over:
        # 1 is a finding, 2 bad input: a build can tell them apart.
        raise typer.Exit(1)


def _read_with_members(
    data: str, columns: Columns, reading: Reading, member: str | None
) -> tuple[Corpus, list[bool] | None]:
    """The corpus, and apart from it who was trained on: that is no attribute to be inferred."""
    if member is None:
        return read_corpus(data, columns, reading), None
    # Read like a private column, then taken out: membership is no attribute to guess.
    names = dict.fromkeys((*columns.private, member))
    corpus = read_corpus(data, replace(columns, private=tuple(names)), reading)
    others = {name: column for name, column in corpus.private.items() if name != member}
    return replace(corpus, private=others), member_flags(corpus.private[member].tolist(), member)


def _check_gate(
    limit: float | None,
    private: list[str] | None,
    derive: str | None,
    data: str,
    attacks: list[str],
) -> None:
    """A gate that nothing can trip is a mistake, not a pass."""
    from capelet.data.datasets import DATASETS
    from capelet.data.labels import makes_task

    if limit is None:
        return
    # A gain over chance cannot reach 1, so such a gate would never close.
    if not 0 <= limit < 1:
        raise DataError(f"--fail-over is a gain in balanced accuracy from 0 to 1, and is {limit:g}")
    of_set = DATASETS[data].private if data in DATASETS else ()
    secrets = [kind for kind in split_names(derive) if not makes_task(kind)]
    if not (private or secrets or of_set) or not {"attributes", "all"} & set(attacks):
        raise DataError(
            "--fail-over needs an attribute to watch: name it with --private or --derive, and "
            "leave attributes among the --attacks"
        )


def _check_attacks(corpus: Corpus, settings: dict[str, Any]) -> Any:
    """Which kinds of attack the data allow; a kind that lacks its columns is refused."""
    from capelet.evaluation.attacks import AttackPlan

    return AttackPlan.of(settings["attacks"], corpus, settings["members"], settings["derived"])


def _measure(
    corpus: Corpus, encoder: PrivateEncoder, settings: dict[str, Any], quiet: bool
) -> Findings:
    from capelet.workflows.audit import audit as run
    from capelet.workflows.audit import inputs_of, plan_of, rows_that_trained

    # Everything that can be wrong with the data is reported before a model is read.
    kinds = _check_attacks(corpus, settings)
    trained = rows_that_trained(encoder, inputs_of(corpus, encoder))
    print_trained(encoder, trained, "they are the defender's, and no victims")
    plan = plan_of(
        corpus, kinds, 1, settings["split_kind"], settings["derived"], settings["bins"], trained
    )
    for warning in plan.advance(encoder.guarantee):
        print(f"capelet: warning: {warning}", file=sys.stderr)
    for reason in kinds.left_out:
        print(f"capelet: left out: {reason}", file=sys.stderr)
    with progress_bars(quiet) as progress:
        return with_command(run(corpus, encoder, progress=progress, **settings))


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
        # By the lower end of the interval: a gate must not close by chance.
        if row.low is not None and row.chance is not None and row.low - row.chance > limit
    ]


def _print(
    findings: Findings, page: Path, over: list[str], limit: float | None, as_json: bool
) -> None:
    from capelet.reports import all_verdicts

    verdicts = all_verdicts(findings)
    if as_json:
        summary = {
            "report": str(page),
            "findings": str(page.parent / "findings.json"),
            "verdicts": [
                {"target": item.target, "level": item.level, "sentence": item.sentence}
                for item in verdicts
            ],
            "over": over,
        }
        print_json(summary)
        return
    for item in verdicts:
        print(f"[{item.level}] {item.sentence}")
    for warning in findings.provenance.get("warnings", []):
        print(f"warning: {warning}")
    if limit is not None and not over:
        print(f"gate: no attribute's attacker gains more than {limit:g} over chance")
    if over:
        print(f"gate: over {limit:g} above chance with 95 % confidence: {', '.join(over)}")
    print(f"report: {page}")
