"""`capelet audit`: what do embeddings of these texts give away?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from capelet.cli.doors import Data, Group, Json, Member, Report
from capelet.cli.inputs import (
    member_flags,
    open_encoder,
    read_auxiliary,
    read_corpus,
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
from capelet.question import Attacks, Columns, Count, Names, Protocol, Source

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
    from capelet.findings import Findings
    from capelet.release import PrivateEncoder
    from capelet.reports.gates import Gates, Ruling
    from capelet.workflows.audit import PlannedAudit


def audit(
    data: Data,
    /,
    *,
    columns: Annotated[Columns, Group.DATA],
    protocol: Annotated[Protocol, Group.MEASURE],
    source: Annotated[Source, Group.DATA],
    attacks: Annotated[Names, Group.MEASURE, "Kinds of attack: {kinds of attack}, or all."] = (
        "attributes",
    ),
    member: Member = None,
    auxiliary: Annotated[
        str | None,
        Group.DATA,
        "Other labelled data that teach one more attacker: a file with columns of the same names, "
        "or a set.",
    ] = None,
    show_texts: Annotated[
        bool, Group.OUTPUT, "Put texts and words into inversion's examples."
    ] = False,
    fail_over: Annotated[
        float | None,
        Group.MEASURE,
        "Exit with 1 when an attacker gains more than this over chance (95 % confidence).",
    ] = None,
    require_under: Annotated[
        float | None,
        Group.MEASURE,
        "Exit with 0 only when every attacker is shown to gain less than this over chance (95 % "
        "confidence); 1 when one gains more, 3 when neither is shown.",
    ] = None,
    min_victims: Annotated[
        Count | None, Group.MEASURE, "Exit with 3 when fewer people than this were scored."
    ] = None,
    compare_map: Annotated[
        list[Path] | None,
        Group.MEASURE,
        "A recipe whose release is plotted on the same t-SNE map as the vectors. May be repeated.",
    ] = None,
    out: Report = None,
    json: Json = False,
) -> None:
    """Measure what embeddings of your texts give away, and write a report.

    Example: `capelet audit mails.parquet --text body --label topic --private gender,age
    --author sender --out runs/mails`
    """
    from capelet.files import check_writable
    from capelet.reports import write_report
    from capelet.reports.gates import Gates, decide
    from capelet.workflows.audit import PlannedAudit

    folder = out or Path("runs") / Path(data).stem
    check_writable(folder)
    gates = Gates(fail_over, require_under, min_victims)
    _check_gates(gates, columns.private, protocol.derive, data, attacks)
    corpus, members = _read_with_members(data, columns, protocol.split, member)
    other = None if auxiliary is None else read_auxiliary(auxiliary, corpus, columns)
    asked = Attacks(attacks, members, other, show_texts, _read_recipes(compare_map or []))
    private = open_encoder(corpus, source)
    planned = PlannedAudit.of(corpus, private, protocol, asked, source.cache)
    _announce(planned)
    with progress_bars(json) as progress:
        findings = with_command(planned.measure(progress))
    page = write_report(findings, folder)
    rulings = gates.rule(findings)
    _print(findings, page, rulings, json)
    # 1 is a finding, 2 bad input, 3 lack of data: a build can tell them apart.
    if code := decide(rulings):
        raise SystemExit(code)


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
    data: str, columns: Columns, split: str | None, member: str | None
) -> tuple[Corpus, list[bool] | None]:
    """The corpus, and apart from it who was trained on: that is no attribute to be inferred."""
    if member is None:
        return read_corpus(data, columns, split), None
    # Read like a private column, then taken out: membership is no attribute to guess.
    names = dict.fromkeys((*columns.private, member))
    corpus = read_corpus(data, replace(columns, private=tuple(names)), split)
    others = {name: column for name, column in corpus.private.items() if name != member}
    return replace(corpus, private=others), member_flags(corpus.private[member].tolist(), member)


def _check_gates(
    gates: Gates, private: Sequence[str], derive: Sequence[str], data: str, attacks: Sequence[str]
) -> None:
    """A gate that nothing can trip is a mistake, not a pass."""
    from capelet.data.datasets import DATASETS
    from capelet.data.labels import makes_task

    of_set = DATASETS[data].private if data in DATASETS else ()
    secrets = [kind for kind in derive if not makes_task(kind)]
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
