"""`capelet invert`: read the words of texts back from their vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from capelet.cli.doors import Data, Group, Json, Report
from capelet.cli.inputs import open_encoder, read_corpus
from capelet.cli.terminal import (
    echo,
    print_verdicts,
    progress_bars,
    report_findings,
    verdict_summaries,
    with_command,
)
from capelet.errors import DataError, name_field
from capelet.question import Columns, Count, Names, Rounds, Seed, Source

if TYPE_CHECKING:
    from capelet.findings import Finding, Findings


def invert(
    data: Data,
    /,
    *,
    columns: Annotated[Columns, Group.DATA, "text author where drop_empty encoding separator"],
    source: Annotated[Source, Group.DATA, "encoder backend recipe"],
    auxiliary: Annotated[
        str | None,
        Group.DATA,
        "The attacker's own texts: a file with the same text column, or a set.",
    ] = None,
    attacks: Annotated[Names, Group.MEASURE, "{inversion attacks}."] = ("multi-label", "multi-set"),
    sentences: Annotated[bool, Group.DATA, "Cut texts into sentences of 5 to 20 words."] = False,
    draws: Annotated[
        Rounds, Group.MEASURE, "How often the attacker sends each text through a noised release."
    ] = 1,
    max_texts: Annotated[
        Count | None, Group.DATA, "Use at most this many texts, drawn at random."
    ] = None,
    minutes: Annotated[
        float | None, Group.MEASURE, "How long the attack 'sequence' may learn."
    ] = None,
    show_texts: Annotated[bool, Group.OUTPUT, "Put texts and words into the examples."] = False,
    allow_overlap: Annotated[
        bool, Group.MEASURE, "Allow victims among the auxiliary texts."
    ] = False,
    seed: Annotated[Seed, Group.MEASURE, "Seed of the split and of the attackers."] = 0,
    out: Report = None,
    json: Json = False,
) -> None:
    """Try to read the words of texts back from their vectors.

    Example: `capelet invert mails.parquet --text body --sentences
    --attacks multi-label,sparse-coding --out runs/words`
    """
    from capelet.evaluation.inversion import Inversion, texts_to_invert
    from capelet.evaluation.provenance import Clock, attack_provenance
    from capelet.files import check_writable

    clock = Clock()
    folder = out or Path("runs") / f"{Path(data).stem}-inverted"
    check_writable(folder)
    if minutes is not None and not minutes > 0:
        raise DataError(f"{name_field('minutes')} is {minutes}; it must be above 0")
    corpus = read_corpus(data, columns)
    texts, authors = texts_to_invert(corpus, sentences, max_texts, seed)
    other = None if auxiliary is None else read_corpus(auxiliary, Columns(text=columns.text))
    own = None if other is None else texts_to_invert(other, sentences, max_texts, seed)[0]
    attack = Inversion(
        attacks=list(attacks),
        draws=draws,
        redact=not show_texts,
        overlap=allow_overlap,
        seed=seed,
        options=None if minutes is None else {"sequence": {"minutes": minutes}},
    )
    private = open_encoder(corpus, source)
    with progress_bars(json) as progress, clock("inversion"):
        findings = attack.measure(texts, private, auxiliary=own, authors=authors, progress=progress)
    origin = attack_provenance(
        "inversion", corpus, private, findings, clock, seed=seed, auxiliary=other,
        pieces=len(texts),
    )  # fmt: skip
    findings = with_command(findings, origin)
    report_findings(findings, folder, json, summarise=_summary, show=_print)


def _overall(findings: Findings, metric: str, **which: Any) -> list[Finding]:
    """The rows over all texts, without those of subgroups."""
    rows = findings.select(kind="inversion", metric=metric, **which)
    return [row for row in rows if row.subgroup is None]


def _summary(findings: Findings, page: Path) -> dict[str, Any]:
    from capelet.reports import all_verdicts

    scores: dict[str | None, dict[str, float | None]] = {
        row.attacker: {"f1": row.value, "low": row.low, "high": row.high}
        for row in _overall(findings, "f1")
    }
    for row in findings.select(kind="inversion", target="sentence"):
        scores[row.attacker][row.metric] = row.value
    return {
        "report": str(page),
        "findings": str(page.parent / "findings.json"),
        "verdicts": verdict_summaries(all_verdicts(findings)),
        "words": scores,
        "most_frequent": findings.value(kind="inversion-reference", metric="f1"),
    }


def _print(findings: Findings, page: Path) -> None:
    """The page's verdict, then the figures of every attacker as figures."""
    from capelet.reports import all_verdicts

    print_verdicts(all_verdicts(findings))
    for row in _overall(findings, "f1"):
        null = findings.value(kind="inversion-null", metric="f1", attacker=row.attacker)
        recall = _overall(findings, "recall", attacker=row.attacker)[0].value
        echo(
            f"{row.attacker}: F1 {row.value:.3f} ({row.low:.3f}–{row.high:.3f}), recall "
            f"{recall:.0%}; another text's vector {null:.3f}, the most frequent words "
            f"{row.majority:.3f} ({row.n} victims)"
        )
        whole = {
            item.metric: item
            for item in findings.select(kind="inversion", target="sentence", attacker=row.attacker)
        }
        if whole:
            match, order = whole["exact_match"], whole["bleu"]
            echo(
                f"{row.attacker}: all words in their order {match.value:.1%} "
                f"({match.low:.1%}–{match.high:.1%}), "
                f"BLEU {order.value:.3f} ({order.low:.3f}–{order.high:.3f})"
            )
    echo(f"report: {page}")
