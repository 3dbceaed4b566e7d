"""Private attributes: the strongest attacker's verdicts, what it needed, and every attacker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any

from capelet.findings import Finding, Findings
from capelet.findings.kinds import KINDS, control_of, reference_of
from capelet.findings.verdicts import Figures, Judgement, Level, Outcome, classify
from capelet.reports.ceilings import ONE_TEXT, ceiling_sentence, person_ceilings
from capelet.reports.draw.bars import Bar
from capelet.reports.draw.curves import Curve
from capelet.reports.facts import artefact, entries, part
from capelet.reports.formatting import (
    NOTHING,
    attacker_name,
    count,
    group_names,
    is_number,
    join_names,
    metric_name,
    percent,
    points,
    quote_names,
    score,
    score_with_interval,
    sentence_of,
    span,
)
from capelet.reports.kinds.families import family_table, winner_sentence
from capelet.reports.kinds.generic import KindReport
from capelet.reports.page import Curves, Line, Section, Table, bars, section, table
from capelet.reports.verdict import (
    Verdict,
    against,
    first,
    gains,
    targets,
    value_of,
)

LEAK = "attribute-inference"
PRIMARY = KINDS[LEAK].metric
ADVERBS: dict[Level, str] = {"strong": "strongly", "clear": "clearly", "slight": "slightly"}
_OTHERWISE: dict[Level, str] = {
    "inconclusive": "whether {} {leak} is inconclusive",
    "none": "no leak of {} was found",
}


def verdicts(findings: Findings) -> list[Verdict]:
    """One verdict per attribute that a strongest attacker was measured on."""
    return AttributeInference(KINDS[LEAK]).verdicts(findings)


def strongest(findings: Findings, target: str) -> Finding | None:
    """The attacker that was chosen on its own part, by balanced accuracy."""
    return first(findings, kind=LEAK, target=target, attacker="strongest", metric=PRIMARY)


def unmeasured_attributes(findings: Findings) -> list[str]:
    """The attributes that were asked about and have no verdict."""
    targets = {verdict.target for verdict in verdicts(findings)}
    return [name for name in part(findings, "attributes") if name not in targets]


def overall(findings: Findings) -> str:
    """The attributes of a run in one sentence, strongest leak first."""
    items = verdicts(findings)
    if not items:
        return "No private attribute was measured, so this report says nothing about leaks."
    pairs = [(verdict.level, verdict.target) for verdict in items]
    # Strongest first, one adverb for each level.
    leaks = [group_names(pairs, {level: f"{{}} {adverb}"}) for level, adverb in ADVERBS.items()]
    leaks = [clause for clause in leaks if clause]
    clauses = [f"The vectors give away {join_names(leaks)}"] if leaks else []
    others = group_names(pairs, _OTHERWISE)
    sentence = sentence_of("; ".join([*clauses, *filter(None, [others])]))
    if not leaks and any(level == "none" for level, _ in pairs):
        sentence += ". That is not proof that there is none"
    # A warning in the first sentence: nobody should quote a number that it voids.
    doubtful = [verdict.target for verdict in items if verdict.warnings]
    if doubtful:
        sentence += f". There is a warning about {quote_names(doubtful)}: read it first"
    return sentence + "."


class AttributeInference(KindReport):
    """Leaks of attributes; each attribute is judged by its own strongest attacker."""

    column = "attribute"

    def rows(self, findings: Findings) -> list[Finding]:
        return [row for row in self.judged(findings) if is_number(row.value)]

    def judged(self, findings: Findings) -> list[Finding]:
        rows = [strongest(findings, target) for target in targets(findings, LEAK)]
        return [row for row in rows if row is not None]

    def control(self, findings: Findings, row: Finding) -> Finding | None:
        return first(findings, kind=control_of(LEAK), target=row.target, metric=row.metric)

    def classify(self, findings: Findings, row: Finding) -> Judgement:
        """By chance alone: a control that is off chance is a warning of its own."""
        return classify(row)

    def warnings(self, findings: Findings, row: Finding) -> list[str]:
        return [_null_warning(self.control(findings, row)), _ceiling_warning(row)]

    def target(self, row: Finding) -> str:
        return row.target

    def opening(self, findings: Findings, row: Finding, figures: Figures) -> str:
        return f"{row.target}: {against(figures, ' balanced accuracy')} by chance"

    def ending(self, findings: Findings, row: Finding, judgement: Judgement) -> str:
        return f"; {_outcome_words(row, judgement)}."

    def additions(self, findings: Findings, row: Finding, digits: int) -> list[str]:
        label, words = _references(findings, row)
        return [
            *_seed_remarks(row),
            _reference_words(label, words, digits),
            ceiling_sentence(row, digits),
            winner_sentence(row),
        ]

    def clause(self, findings: Findings) -> str:
        return overall(findings).rstrip(".") if verdicts(findings) else ""

    def section(self, findings: Findings) -> Section | None:
        rows = [self.bar(findings, row, row.target) for row in self.rows(findings)]
        name = "Balanced accuracy of the strongest attacker, per attribute"
        block = bars(rows, name, *self.kind.caption)
        return section("leakage", self.kind.heading, [block], "Leakage")

    def bar(self, findings: Findings, row: Finding, label: str, group: str = "") -> Bar:
        # From chance, also where the majority class is larger: balanced accuracy does not profit
        # from it.
        return replace(super().bar(findings, row, label, group), start=row.chance)

    def marks(self, findings: Findings, row: Finding) -> list[tuple[str, float | None]]:
        label, words = _references(findings, row)
        null = value_of(self.control(findings, row))
        marks = [("chance", row.chance), ("predicted-label", label), ("tf-idf", words)]
        return [*marks, ("null", null), ("ceiling", row.ceiling)]

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        families = [family_table(findings, LEAK, target) for target in targets(findings, LEAK)]
        return [
            ("Leakage and its controls", summary_table(findings)),
            *(("Every attacker, per attribute", item) for item in families),
            ("Learning curves", curve_table(findings)),
        ]

    def pair_name(self, target: str, attacker: str | None) -> str:
        return target


# ---- verdicts ------------------------------------------------------------------------------------


def _references(findings: Findings, row: Finding) -> tuple[float | None, float | None]:
    """What the predicted task label alone gives, and what the text itself."""
    fields = {"kind": reference_of(LEAK), "target": row.target, "metric": row.metric}
    label, text = (
        value_of(first(findings, attacker=name, **fields)) for name in ("predicted-label", "tf-idf")
    )
    return label, text


def _outcome_words(row: Finding, judgement: Judgement) -> str:
    figures = judgement.figures
    if judgement.outcome == Outcome.LEAK:
        return gains(figures)
    room = figures.high_gain
    room_words = points(room, figures.decimals)
    # As printed: less than half of the last digit is no room that a sentence could name.
    has_room = room is not None and room > 0 and room_words != points(0.0, figures.decimals)
    if judgement.outcome == Outcome.NO_LEAK_FOUND:
        if has_room:
            return f"no leak found, but the interval leaves room for a gain of up to {room_words}"
        return "no leak found, which is not proof that there is none"
    # A constant guess is at chance by definition and shows nothing about the vectors.
    if row.degenerate:
        return (
            "inconclusive: the strongest attacker gave every text the same answer, "
            "so nothing was learnt and this is no evidence that there is no leak"
        )
    # What could still be there: a wide interval around chance is no comfort.
    if has_room:
        return f"inconclusive: the interval leaves room for a gain of up to {room_words}"
    if room is not None:
        return "inconclusive: the interval is too wide to tell the score from luck"
    return "inconclusive: without an interval the score cannot be told from luck"


def _seed_remarks(row: Finding) -> list[str]:
    """In how many seeds victims could not be told apart, or, where not in all, were not."""
    seeds = len(row.parameters.get("by_seed") or [])
    single, constant = (row.parameters.get(f"{name}_seeds") for name in ("one_class", "constant"))
    remarks = []
    if single:
        total = count(single + seeds)
        remarks.append(
            f"{count(single)} of {total} seeds left out: their victims are of one class."
        )
    if constant and not row.degenerate:
        remarks.append(
            f"In {count(constant)} of {count(seeds)} seeds it gave every text the same answer."
        )
    return remarks


def _reference_words(label: float | None, text: float | None, digits: int) -> str:
    if label is None:
        return "" if text is None else f"The text itself gives {percent(text, digits)}."
    more = "" if text is None else f", the text itself {percent(text, digits)}"
    return f"The predicted task label alone gives {percent(label, digits)}{more}."


def _null_warning(null: Finding | None) -> str:
    """A control with shuffled labels must not lie above chance; if so, the score is suspect.

    Below chance is no leak: shuffled labels of few authors are drawn without replacement, so that
    an attacker's authors have rather the other label than their nearest victims.
    """
    if null is None or null.chance is None or not is_number(null.value):
        return ""
    # On meaningless labels nobody can beat chance: whatever does has seen the answers.
    low_gain = Figures.of(null).low_gain
    if low_gain is None or low_gain <= 0:
        return ""
    interval = span(null.low, null.high, 1)
    return (
        f"Warning about {null.target}: with shuffled labels the attacker scored "
        f"{percent(null.value, 1)} "
        f"({interval}) where chance is {percent(null.chance, 1)}. The protocol leaks, or this is "
        "one unlucky draw in about forty: do not rely on this verdict before a run with "
        "other seeds has cleared it."
    )


def _ceiling_warning(row: Finding) -> str:
    # The whole interval, not the value: a value above its bound by luck is no broken proof.
    if row.ceiling is None or row.low is None or row.low <= row.ceiling:
        return ""
    return (
        f"Warning about {row.target}: the whole interval lies above the "
        f"{percent(row.ceiling, 1)} that the stated "
        "guarantee permits to anyone from one text. The guarantee does not hold as stated, or its "
        "assumptions do not (one release per secret, no side information)."
    )


# ---- what the attacker needed --------------------------------------------------------------------


def needs(findings: Findings) -> list[str]:
    """How many labelled texts the attacker needed for half of its gain, one sentence each."""
    content = artefact(findings, "learning_curve")
    curves: Mapping[str, Any] = content.get("curves") or {}
    attacker = attacker_name(content.get("attacker", "logistic"))
    return [
        _need(verdict, curves[verdict.target], attacker)
        for verdict in verdicts(findings)
        if (curves.get(verdict.target) or {}).get("labels_per_class")
    ]


def _need(verdict: Verdict, curve: Mapping[str, Any], attacker: str) -> str:
    labels, values = curve["labels_per_class"], curve.get("value") or []
    most = labels[-1]
    if verdict.outcome != Outcome.LEAK or verdict.gain is None or verdict.chance is None:
        return f"{verdict.target}: {verdict.outcome} with all of the attacker’s labelled texts."
    # Half of the gain, not of the score: chance needs no label at all.
    half = verdict.chance + verdict.gain / 2
    for number, value in zip(labels, values, strict=False):
        if value is not None and value >= half:
            return (
                f"{verdict.target}: {number} labelled texts per class and {attacker} "
                f"are enough for half of the full gain ({percent(value)})."
            )
    return (
        f"{verdict.target}: {most} labelled texts per class give {attacker} "
        "less than half of the full gain; the full gain needs more labels or a stronger attacker."
    )


def read_curves(findings: Findings) -> tuple[Curve, ...]:
    """The curves among the artefacts that can be drawn, with the full attack's score."""
    content = artefact(findings, "learning_curve").get("curves")
    full = {verdict.target: verdict.value for verdict in verdicts(findings)}
    curves = (Curve.read(name, curve, full.get(name)) for name, curve in entries(content))
    return tuple(curve for curve in curves if curve is not None)


def learning_curves(findings: Findings) -> Curves | None:
    """A panel per attribute, with the full attack's score as a line."""
    curves = read_curves(findings)
    attacker = artefact(findings, "learning_curve").get("attacker")
    caption = (
        f"Balanced accuracy of {attacker_name(attacker)} with few labelled texts per class; the "
        "band is the 95 % interval."
    )
    return Curves(curves, "How fast the attacker learns.", caption) if curves else None


def curve_table(findings: Findings) -> Table | None:
    """The numbers of the learning curves: a line per attribute, a column per number of labels."""
    metric = artefact(findings, "learning_curve").get("metric", PRIMARY)
    curves = read_curves(findings)
    numbers = sorted({number for curve in curves for number in curve.labels})
    lines = []
    for curve in curves:
        ends = zip(curve.lows or repeat(None), curve.highs or repeat(None), strict=False)
        cells = {
            number: score_with_interval(Finding(LEAK, curve.name, metric, value, low, high))
            for number, value, (low, high) in zip(curve.labels, curve.values, ends, strict=False)
        }
        lines.append(Line((curve.name, *(cells.get(number, NOTHING) for number in numbers))))
    columns = ("attribute", *(f"{count(number)} labels" for number in numbers))
    note = f"{metric_name(metric).capitalize()} by labelled texts per class, with 95 % intervals."
    return table("Learning curves", columns, lines, note)


def summary_table(findings: Findings) -> Table | None:
    """One line per attribute: the strongest attacker beside all its controls."""
    lines = []
    report = AttributeInference(KINDS[LEAK])
    rows = report.judged(findings)
    # All attributes have the same people, so the same columns.
    persons = {item.texts: item.title for row in rows for item in person_ceilings(row)}
    for row in rows:
        by_texts = {item.texts: item.ceiling for item in person_ceilings(row)}
        controls = (row.chance, value_of(report.control(findings, row)))
        ceilings = (row.ceiling, *(by_texts.get(texts) for texts in persons))
        values = (*controls, *_references(findings, row), *ceilings)
        cells = (score(PRIMARY, value) for value in values)
        lines.append(Line((row.target, score_with_interval(row), *cells, count(row.n))))
    columns = ("attribute", "strongest attacker", "chance", "shuffled labels", "predicted label")
    note = "Balanced accuracy with its 95 % interval; means over all seeds. Victims per seed."
    more = ("text itself", ONE_TEXT, *persons.values(), "victims")
    return table("Leakage and its controls", (*columns, *more), lines, note)
