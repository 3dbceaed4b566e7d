"""All numbers of the attacks on words, writers and training texts, as tables."""

from __future__ import annotations

from capelet.findings import Finding, Findings
from capelet.reports.attacks import control, examples, measured, row_of
from capelet.reports.tables import Line, Table
from capelet.reports.words import NOTHING, attacker_name, count, score, score_with_interval


def attack_tables(findings: Findings) -> list[Table]:
    """All numbers of the other kinds of attack."""
    made = [
        _word_table(findings),
        _band_table(findings),
        _writer_table(findings),
        _member_table(findings),
        _tenth_table(findings),
    ]
    return [table for table in made if table is not None]


def _word_table(findings: Findings) -> Table | None:
    rows = measured(findings, "inversion")
    metrics = ("f1", "precision", "recall")
    lines = []
    for row in rows:
        cells = [_cell(row_of(findings, "inversion", metric, row.attacker)) for metric in metrics]
        null = control(findings, row)
        lines.append(
            Line(
                (
                    attacker_name(row.attacker),
                    str(row.parameters.get("access") or NOTHING),
                    *cells,
                    score("f1", null.value if null else None),
                    count(row.n),
                    count(row.parameters.get("auxiliary")),
                )
            )
        )
    blind = [_cell(row_of(findings, "inversion-reference", metric, None)) for metric in metrics]
    if lines and any(cell != NOTHING for cell in blind):
        name = attacker_name("most-frequent")
        lines.append(Line((name, NOTHING, *blind, NOTHING, NOTHING, NOTHING), "control"))
    columns: tuple[str, ...] = (
        "attacker",
        "access",
        "F1",
        "precision",
        "recall",
        "another text’s vector, F1",
    )
    columns += ("victims", "auxiliary texts")
    note = (
        "Means over victims with 95 % intervals. Recall: the share of a text’s words that were "
        "named. Precision: the share of named words that are there. F1 is between the two."
    )
    return Table("Words read back", columns, tuple(lines), note, 2) if lines else None


def _band_table(findings: Findings) -> Table | None:
    rows = [r for r in findings.select(kind="inversion", metric="recall") if r.subgroup]
    names = [row.attacker for row in measured(findings, "inversion")]
    bands = list(dict.fromkeys(row.subgroup or "" for row in rows))
    lines = [
        Line(
            (
                band,
                *(
                    _cell(next((r for r in rows if (r.subgroup, r.attacker) == (band, name)), None))
                    for name in names
                ),
            )
        )
        for band in bands
    ]
    columns = ("words by frequency", *(attacker_name(name) for name in names))
    note = "Share of the words there that were named; each fifth holds as many running words."
    return (
        Table("Words found, by how frequent they are", columns, tuple(lines), note)
        if lines
        else None
    )


def _writer_table(findings: Findings) -> Table | None:
    lines = []
    named = {
        "authorship": "",
        "authorship-null": " (shuffled labels)",
        "authorship-reference": " (reference)",
    }
    for kind, said in named.items():
        found = findings.select(kind=kind)
        for attacker in dict.fromkeys(row.attacker for row in found):
            cells = [_cell(row_of(findings, kind, metric, attacker)) for metric in ("top1", "top5")]
            role = "" if kind == "authorship" else "control"
            lines.append(Line((attacker_name(attacker) + said, *cells), role))
    judged = measured(findings, "authorship")
    if not lines or not judged:
        return None
    for field, said in (("chance", "chance"), ("ceiling", "ceiling of the guarantee")):
        cells = [
            score(metric, getattr(row_of(findings, "authorship", metric, None), field, None))
            for metric in ("top1", "top5")
        ]
        if any(cell != NOTHING for cell in cells):
            lines.append(Line((said, *cells), "control"))
    row = judged[0]
    note = (
        f"{count(row.parameters.get('writers'))} writers, {count(row.parameters.get('shots'))} "
        f"known texts of each, about {count(row.n)} texts to attribute; means over "
        f"{len(row.parameters.get('by_seed') or [0])} draws of writers and texts."
    )
    columns = ("attacker", "writer named first", "among the first five")
    return Table("Writers", columns, tuple(lines), note)


def _member_table(findings: Findings) -> Table | None:
    metrics = ("advantage", "auc", "tpr_at_1_fpr", "tpr_at_01_fpr")
    lines = []
    for row in measured(findings, "membership"):
        found = {
            item.metric: item
            for item in findings.select(
                kind="membership", target=row.target, attacker=row.attacker, subgroup=None
            )
        }
        null = control(findings, row)
        lines.append(
            Line(
                (
                    row.target,
                    attacker_name(row.attacker),
                    *(_cell(found.get(metric)) for metric in metrics),
                    _cell(null),
                    count(row.n),
                )
            )
        )
    columns: tuple[str, ...] = (
        "target",
        "attacker",
        "advantage",
        "AUC",
        "found at 1 % false alarms",
    )
    columns += ("found at 0.1 %", "advantage, membership dealt anew", "scored")
    note = (
        "Advantage: true minus false positives, in points, at a threshold that was chosen on "
        "other texts. Chance is 0 points and an AUC of 0.5."
    )
    return Table("Training texts", columns, tuple(lines), note, 2) if lines else None


def _tenth_table(findings: Findings) -> Table | None:
    rows = [r for r in findings.select(kind="membership", metric="advantage") if r.subgroup]
    names = list(dict.fromkeys(row.attacker for row in rows))
    nulls = findings.select(kind="membership-null", metric="advantage")
    lines = []
    for group in dict.fromkeys(row.subgroup for row in rows):
        cells = []
        for name in names:
            for found in (rows, nulls):
                mine = [r for r in found if (r.subgroup, r.attacker) == (group, name)]
                cells.append(_cell(mine[0] if mine else None))
        lines.append(Line((tenth_name(group), *cells)))
    columns = ["centre words"]
    for name in names:
        columns += [attacker_name(name), "dealt anew"]
    note = "Advantage in points; each tenth of the centre words has its own threshold."
    title = "Training texts, by how frequent the centre word is"
    return Table(title, tuple(columns), tuple(lines), note) if lines else None


def tenth_name(subgroup: str | None) -> str:
    """`rarest tenth`, `tenth 2` … `most frequent tenth`, from the finding's subgroup.

    >>> tenth_name("decile 1 by word frequency"), tenth_name("decile 4 by word frequency")
    ('rarest tenth', 'tenth 4')
    """
    number = "".join(sign for sign in subgroup or "" if sign.isdigit())
    return {"1": "rarest tenth", "10": "most frequent tenth"}.get(number, f"tenth {number}")


def _cell(row: Finding | None) -> str:
    return NOTHING if row is None else score_with_interval(row)


def examples_table(findings: Findings) -> Table | None:
    """Some victims in numbers: how many words there were, and what each attacker made of them."""
    shown = examples(findings)
    names = list(dict.fromkeys(name for item in shown for name in item.get("attackers") or {}))
    lines = []
    for place, item in enumerate(shown, 1):
        cells = []
        for name in names:
            read = (item.get("attackers") or {}).get(name) or {}
            right, said = count(read.get("right")), count(read.get("named"))
            cells.append(f"{right} of {said}" if read else NOTHING)
        lines.append(Line((f"text {place}", count(item.get("words")), *cells)))
    columns = (
        "victim",
        "words in it",
        *(f"{attacker_name(name)}: right of named" for name in names),
    )
    return Table("Some victims, in numbers", columns, tuple(lines)) if lines and names else None
