"""`capelet membership`: tell which texts a model was trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from capelet.cli.doors import Group, Json, Report
from capelet.cli.inputs import member_flags, open_encoder, read_corpus
from capelet.cli.terminal import (
    echo,
    print_verdicts,
    progress_bars,
    report_findings,
    verdict_summaries,
    with_command,
)
from capelet.errors import DataError
from capelet.question import Columns, Rounds, Seed, Source

if TYPE_CHECKING:
    from capelet.findings import Findings


def membership(
    data: Annotated[str, "A Parquet, CSV or JSONL file."],
    /,
    *,
    member: Annotated[str, Group.DATA, "Column that says who was trained on (yes/no, 1/0)."],
    columns: Annotated[Columns, Group.DATA, "text author where drop_empty encoding separator"],
    words: Annotated[
        Path | None, Group.MEASURE, "Word vectors in word2vec's text format, to be attacked."
    ] = None,
    source: Annotated[Source, Group.DATA, "encoder recipe"],
    window: Annotated[Rounds, Group.MEASURE, "Words to either side of a window's centre."] = 5,
    by_frequency: Annotated[
        bool, Group.MEASURE, "Look at pairs of sentences by how frequent their words are, too."
    ] = False,
    seed: Annotated[Seed, Group.MEASURE, "Seed of the split and of the attackers."] = 0,
    out: Report = None,
    json: Json = False,
) -> None:
    """Tell which texts a model was trained on, by how alike things of one context are.

    Example: `capelet membership mails.parquet --text body --member in_training
    --words vectors.txt --out runs/members`
    """
    from capelet.encoders.word_vectors import read_word_vectors
    from capelet.evaluation.membership import Membership
    from capelet.evaluation.provenance import Clock, attack_provenance
    from capelet.files import check_writable

    folder = out or Path("runs") / f"{Path(data).stem}-members"
    check_writable(folder)
    if sum(item is not None for item in (words, source.encoder, source.recipe)) != 1:
        raise DataError("name one model to attack: --words FILE, --encoder NAME or --recipe FILE")
    if by_frequency and words is not None:
        raise DataError(
            "windows of words are always looked at by frequency; leave --by-frequency out"
        )
    clock = Clock()
    corpus = read_corpus(data, replace(columns, private=(member,)))
    flags = member_flags(corpus.private[member].tolist(), member)
    attack = Membership(window=window, seed=seed, by_frequency=by_frequency)
    model = words or open_encoder(corpus, source)
    with progress_bars(json) as progress, clock("membership"):
        if isinstance(model, Path):
            findings = attack.of_words(corpus, flags, read_word_vectors(model))
        else:
            findings = attack.of_encoder(corpus, flags, model, progress)
    origin = attack_provenance(
        "membership", corpus, model, findings, clock, seed=seed, members=sum(flags)
    )
    findings = with_command(findings, origin)
    report_findings(findings, folder, json, summarise=_summary, show=_print)


def _summary(findings: Findings, page: Path) -> dict[str, Any]:
    from capelet.reports import all_verdicts

    rows = findings.select(kind="membership", metric="advantage")
    advantages = [
        {
            "target": row.target,
            "attacker": row.attacker,
            "subgroup": row.subgroup,
            "advantage": row.value,
            "low": row.low,
            "high": row.high,
        }
        for row in rows
    ]
    file = str(page.parent / "findings.json")
    verdicts = verdict_summaries(all_verdicts(findings))
    return {"report": str(page), "findings": file, "verdicts": verdicts, "advantage": advantages}


def _print(findings: Findings, page: Path) -> None:
    """Every score as a figure, and at the end the page's verdict."""
    from capelet.reports import all_verdicts

    for row in findings.select(kind="membership", metric="advantage"):
        where = f", {row.subgroup}" if row.subgroup else ""
        auc = findings.select(
            kind="membership",
            metric="auc",
            attacker=row.attacker,
            target=row.target,
            subgroup=row.subgroup,
        )[0]
        echo(
            f"{row.target} by {row.attacker}{where}: advantage {row.value:.3f} "
            f"({row.low:.3f}–{row.high:.3f}), AUC {auc.value:.3f}, {row.n} scored"
        )
    print_verdicts(all_verdicts(findings))
    echo(f"report: {page}")
