"""The report's sections on words, writers and training texts: sentences, bars and examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from capelet.findings import Finding, Findings
from capelet.reports import figures
from capelet.reports.attack_tables import examples_table, tenth_name
from capelet.reports.attacks import (
    KINDS,
    TITLES,
    base_of,
    control,
    examples,
    judged_level,
    measured,
    other_verdicts,
    shows_texts,
    strongest,
    told,
)
from capelet.reports.figures import Bar
from capelet.reports.tables import Table
from capelet.reports.words import attacker_name, known, percent

HEADINGS = {
    "inversion": "Can the words be read back?",
    "authorship": "Can the writer be told?",
    "membership": "Can training texts be told from others?",
}
CAPTIONS = {
    "inversion": (
        "F1 of the words read back.",
        "A bar begins at what naming the same most frequent words of every text reaches, so its "
        "length is what the vectors give away.",
    ),
    "authorship": (
        "Texts whose writer is found.",
        "A bar begins at chance. Where the vectors beat the text itself, the encoder brought "
        "knowledge that helps to tell writers apart.",
    ),
    "membership": (
        "Advantage of the attacker.",
        "True minus false positives: 0 % is guessing, 100 % is to know. Thresholds were chosen on "
        "other texts.",
    ),
}
GUESSES = {"top1": "the first guess", "top5": "the first five guesses"}
PARTS = {
    "inversion": (
        "Which words are found.",
        "Share of the words there that {attacker} named, by how frequent they are: each fifth "
        "holds as many running words.",
    ),
    "membership": (
        "Rare words are remembered.",
        "Advantage of {attacker} by how frequent the centre word is, each tenth with a threshold "
        "of its own.",
    ),
}


@dataclass(frozen=True)
class Picture:
    """Rows of bars, as `render.rows_of` makes them, with a title and a caption."""

    drawn: dict[str, Any]
    title: str
    caption: str


@dataclass(frozen=True)
class Section:
    """One kind of attack on the page; `examples` hold texts only where the run was told to."""

    kind: str
    heading: str
    link: str
    sentences: tuple[str, ...]
    pictures: tuple[Picture, ...]
    examples: tuple[Any, ...] = ()
    numbers: Table | None = None


def sections(findings: Findings) -> list[Section]:
    """A section for each other kind of attack that was measured."""
    judged = {verdict.target: verdict for verdict in other_verdicts(findings)}
    made = []
    for kind in KINDS:
        verdict = judged.get(TITLES[kind])
        if verdict is None:
            continue
        said = verdict.sentence.removeprefix(f"{verdict.target}: ")
        sentences = (f"{said[0].upper()}{said[1:]}", *_more(findings, kind))
        pictures = [_bars(findings, kind), _by_frequency(findings, kind)]
        shown = examples(findings) if kind == "inversion" else []
        texts = shows_texts(findings)
        made.append(
            Section(
                kind,
                HEADINGS[kind],
                TITLES[kind].capitalize(),
                sentences,
                tuple(picture for picture in pictures if picture is not None),
                tuple(_example(item) for item in shown) if texts else (),
                examples_table(findings) if shown and not texts else None,
            )
        )
    return made


def compared(before: Findings, after: Findings, names: tuple[str, str]) -> Picture | None:
    """Every attacker of the other kinds, both runs under each other."""
    found = []
    for pair in told(before, after):
        for run, name, row in zip((before, after), names, (pair.before, pair.after), strict=True):
            if row is not None:
                found.append(_bar(run, row, name, pair.name))
    caption = (
        "A bar begins at what needs no vectors: the most frequent words, or chance. A shorter bar "
        "is a smaller leak."
    )
    title = "Words, writers and training texts."
    return _picture(found, "Other attacks in both runs", title, caption)


def _more(findings: Findings, kind: str) -> list[str]:
    """What stands beside the verdict: the control, and where the leak is largest."""
    row = strongest(findings, kind)
    assert row is not None
    said = []
    null = control(findings, row)
    if null is not None and kind == "inversion":
        said.append(
            f"Control: with the vector of another text the same guesses would reach "
            f"{percent(null.value)}, which any two texts share."
        )
    elif null is not None and kind == "authorship":
        said.append(f"Control: with shuffled labels the attacker reaches {percent(null.value, 1)}.")
    elif null is not None:
        said.append(
            f"Control: with membership dealt out anew the advantage is {percent(null.value, 1)}."
        )
    parts = _parts(findings, row)
    if parts and kind == "inversion":
        said.append(
            f"Of the rarest fifth of words {percent(parts[0].value)} are found, of the most "
            f"frequent fifth {percent(parts[-1].value)}."
        )
    if parts and kind == "membership":
        said.append(
            f"In the rarest tenth of centre words the advantage is {percent(parts[0].value)}, in "
            f"the most frequent {percent(parts[-1].value)}."
        )
    tried = measured(findings, kind)
    if len(tried) > 1:
        said.append(
            f"Judged is {attacker_name(row.attacker)} on {row.target}, as fixed beforehand; of "
            f"{len(tried)} scores one or the other is high by luck."
            if kind == "membership"
            else f"Of {len(tried)} attackers the one is judged whose interval begins highest."
        )
    return said


def _parts(findings: Findings, row: Finding) -> list[Finding]:
    """The same attacker by word frequency, rarest first."""
    metric = {"inversion": "recall", "membership": "advantage"}.get(row.kind)
    rows = findings.select(kind=row.kind, target=row.target, metric=metric, attacker=row.attacker)
    return [item for item in rows if item.subgroup is not None and known(item.value)]


def _bars(findings: Findings, kind: str) -> Picture | None:
    if kind == "authorship":
        rows = [
            row
            for metric in ("top1", "top5")
            for row in findings.select(kind=kind, metric=metric)
            if known(row.value)
        ]
        drawn = [_bar(findings, row, GUESSES[row.metric]) for row in rows]
    else:
        rows = measured(findings, kind)
        targets = list(dict.fromkeys(row.target for row in rows))
        drawn = [
            _bar(findings, row, attacker_name(row.attacker), row.target if len(targets) > 1 else "")
            for row in sorted(rows, key=lambda row: targets.index(row.target))
        ]
    return _picture(drawn, HEADINGS[kind], *CAPTIONS[kind])


def _bar(findings: Findings, row: Finding, label: str, group: str = "") -> Bar:
    null = control(findings, row)
    marks: list[tuple[str, float | None]] = [
        ("most-frequent" if row.kind == "inversion" else "chance", base_of(row)),
        ("other-text" if row.kind == "inversion" else "null", null.value if null else None),
        ("ceiling", row.ceiling),
    ]
    if row.kind == "authorship":
        text = findings.select(kind="authorship-reference", metric=row.metric)
        marks.append(("text-cnn", text[0].value if text else None))
    return Bar(
        label=label,
        value=row.value,
        low=row.low,
        high=row.high,
        start=base_of(row),
        marks=tuple((kind, value) for kind, value in marks if value is not None and known(value)),
        tone=_tone(findings, row),
        group=group,
    )


def _tone(findings: Findings, row: Finding) -> str:
    """The level's colour; scores of membership that are not judged stay neutral."""
    if row.kind == "membership" and row != strongest(findings, row.kind):
        return "accent"
    return f"level-{judged_level(findings, row)}"


def _by_frequency(findings: Findings, kind: str) -> Picture | None:
    row = strongest(findings, kind)
    if kind not in PARTS or row is None:
        return None
    drawn = []
    for item in _parts(findings, row):
        null = control(findings, item)
        fifth = (item.subgroup or "").removesuffix(" of words")
        name = tenth_name(item.subgroup) if kind == "membership" else fifth
        marks = (("null", null.value),) if null is not None else ()
        drawn.append(Bar(name, item.value, item.low, item.high, marks=marks))
    title, caption = PARTS[kind]
    said = caption.format(attacker=attacker_name(row.attacker))
    return _picture(drawn, title, title, said)


def _picture(drawn: list[Bar], name: str, title: str, caption: str) -> Picture | None:
    if not drawn:
        return None
    made = {"picture": figures.bars(drawn, name), "legend": figures.legend_of(drawn)}
    return Picture(made, title, caption)


def _example(item: dict[str, Any]) -> dict[str, Any]:
    """A victim's text beside what each attacker read."""
    reads = [
        {
            "attacker": attacker_name(name),
            "right": [str(word) for word in read.get("right_words") or []],
            "wrong": [str(word) for word in read.get("wrong_words") or []],
            "f1": percent(read.get("f1")),
        }
        for name, read in (item.get("attackers") or {}).items()
    ]
    return {"text": str(item.get("text") or ""), "reads": reads}
