"""`capelet audit`: what do embeddings of these texts give away?"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from capelet.cli import options
from capelet.cli.inputs import (
    Columns,
    Reading,
    member_flags,
    open_encoder,
    parse_bins,
    parse_seeds,
    read_auxiliary,
    read_corpus,
    split_names,
)
from capelet.cli.terminal import (
    echo,
    print_json,
    print_leaves,
    print_trained,
    print_verdicts,
    progress_bars,
    verdict_summaries,
    with_command,
)
from capelet.errors import DataError, name_field, spell

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
    from capelet.findings import Findings
    from capelet.release import PrivateEncoder
    from capelet.reports.gates import Gates, Ruling
    from capelet.workflows.audit import PlannedAudit


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
    seeds: options.Seeds = "5",
    attacks: options.KindsOfAttack = "attributes",
    attackers: options.Attackers = None,
    member: options.MemberIfAny = None,
    auxiliary: options.AuxiliaryData = None,
    show_texts: options.ShowInverted = False,
    bins: options.Bins = None,
    fail_over: options.FailOver = None,
    require_under: options.RequireUnder = None,
    min_victims: options.MinVictims = None,
    seeded_noise: options.SeededRelease = False,
    threads: options.Threads = None,
    metrics: options.Metrics = None,
    compare_map: options.CompareMap = None,
    no_cache: options.NoCache = False,
    out: options.OutReport = None,
    json: options.Json = False,
) -> None:
    """Measure what embeddings of your texts give away, and write a report.

    Example: `capelet audit mails.parquet --text body --label topic --private gender,age
    --author sender --out runs/mails`
    """
    from capelet.data.official import column_of
    from capelet.files import check_writable
    from capelet.question import Attacks, Protocol
    from capelet.reports import write_report
    from capelet.reports.gates import Gates, decide
    from capelet.workflows.audit import PlannedAudit

    folder = out or Path("runs") / Path(data).stem
    check_writable(folder)
    gates = Gates(fail_over, require_under, min_victims)
    _check_gates(gates, private, derive, data, split_names(attacks))
    names = tuple(private or ())
    columns = Columns(text, label, names, author, vectors, column_of(split))
    reading = Reading(where, drop_empty, merge_rare, encoding, separator)
    corpus, members = _read_with_members(data, columns, reading, member)
    protocol = Protocol(
        split,
        parse_seeds(seeds),
        split_names(attackers),
        split_names(metrics),
        split_names(derive),
        parse_bins(bins),
        seeded_noise,
        threads,
    )
    other = None if auxiliary is None else read_auxiliary(auxiliary, corpus, columns, reading)
    compared = _read_recipes(compare_map or [])
    asked = Attacks(split_names(attacks), members, other, show_texts, compared)
    private_encoder = open_encoder(corpus, recipe, encoder, backend)
    planned = PlannedAudit.of(corpus, private_encoder, protocol, asked, not no_cache)
    _announce(planned)
    with progress_bars(json) as progress:
        findings = with_command(planned.measure(progress))
    page = write_report(findings, folder)
    rulings = gates.rule(findings)
    _print(findings, page, rulings, json)
    # 1 is a finding, 2 bad input, 3 lack of data: a build can tell them apart.
    if code := decide(rulings):
        raise typer.Exit(code)


def _read_recipes(paths: list[Path]) -> dict[str, PrivateEncoder]:
    """The private encoders of these recipes, by the names of their files or folders."""
    from capelet.release import PrivateEncoder

    names = [path.stem for path in paths]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"two recipes of --compare-map are called {twice!r}; rename one of the files"
        )
    return {path.stem: PrivateEncoder.from_recipe(path) for path in paths}


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


def _check_gates(
    gates: Gates, private: list[str] | None, derive: str | None, data: str, attacks: list[str]
) -> None:
    """A gate that nothing can trip is a mistake, not a pass."""
    from capelet.data.datasets import DATASETS
    from capelet.data.labels import makes_task

    of_set = DATASETS[data].private if data in DATASETS else ()
    secrets = [kind for kind in split_names(derive) if not makes_task(kind)]
    has_attributes = bool(private or secrets or of_set) and bool({"attributes", "all"} & {*attacks})
    if gates.names and not has_attributes:
        raise DataError(
            f"{name_field(gates.names[0])} needs an attribute to watch: name it with --private or "
            "--derive, and leave attributes among the --attacks"
        )


def _announce(planned: PlannedAudit) -> None:
    """What is known of the answer before a model is read."""
    plan, target = planned.plan, planned.target
    print_trained(target, plan.trained, "they are the defender's, and no victims")
    for warning in plan.epsilon_warnings(target.guarantee):
        echo(f"capelet: warning: {warning}", file=sys.stderr)
    for reason in plan.attacks.left_out:
        echo(f"capelet: left out: {spell(reason, 'terminal')}", file=sys.stderr)


def _print(findings: Findings, page: Path, rulings: list[Ruling], as_json: bool) -> None:
    from capelet.reports import all_verdicts, what_leaves

    verdicts, leaves = all_verdicts(findings), what_leaves(findings)
    if as_json:
        over = [name for ruling in rulings if ruling.decision == 1 for name in ruling.attributes]
        summary = {
            "report": str(page),
            "findings": str(page.parent / "findings.json"),
            "leaves": leaves,
            "verdicts": verdict_summaries(verdicts),
            "over": list(dict.fromkeys(over)),
            "gates": [
                {
                    "gate": spell(ruling.gate, "terminal"),
                    "decision": ruling.decision.name.lower(),
                    "attributes": list(ruling.attributes),
                    "sentence": spell(ruling.sentence, "terminal"),
                }
                for ruling in rulings
            ],
        }
        print_json(summary)
        return
    print_leaves(leaves)
    print_verdicts(verdicts)
    for warning in findings.provenance.get("warnings", []):
        echo(f"warning: {warning}")
    for ruling in rulings:
        echo(spell(ruling.sentence, "terminal"))
    echo(f"report: {page}")
