"""What a report says of a kind of finding, from the kind's record alone.

`KindReport` is the protocol that every page is built on: verdicts, a clause for the lead, a
section, tables, bars, and the pairs of a comparison. A kind with something particular to say
inherits from it in a module of its own and overrides that part.

A leak is said to be found when the whole interval lies above what needs no vectors at all *and*
above the interval of the control (`capelet.findings.verdicts`). Where several attackers tried, the
one whose interval begins highest is judged; since that is a choice made by looking, the control has
to be cleared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from capelet.findings import Finding, Findings
from capelet.findings.kinds import (
    KINDS,
    Kind,
    better,
    control_of,
    kind_of,
    reference_of,
    split_kind,
)
from capelet.findings.verdicts import Figures, Judgement, Outcome, classify
from capelet.reports.ceilings import ONE_TEXT
from capelet.reports.draw.bars import Bar, marks_of
from capelet.reports.facts import method_name, scored_units
from capelet.reports.formatting import (
    NOTHING,
    attacker_name,
    change,
    count,
    difference,
    is_number,
    is_share,
    metric_name,
    score,
    score_with_interval,
    sentence_of,
)
from capelet.reports.page import (
    Bars,
    Block,
    Line,
    Passage,
    Section,
    Table,
    bars,
    section,
    table,
    text,
)
from capelet.reports.verdict import Verdict, against, gains, people_words, value_of

OTHERS = "Other measurements"
Key = TypeVar("Key")


@dataclass(frozen=True)
class Pair:
    """One measurement of both runs, how it is called, and the table that it stands in.

    Only what is `headline` is said in sentences and drawn as bars.
    """

    kind: str
    name: str
    before: Finding | None
    after: Finding | None
    table: str
    headline: bool = True
    control: bool = False

    @property
    def rows(self) -> tuple[Finding | None, Finding | None]:
        return self.before, self.after

    @property
    def metric(self) -> str:
        row = self.before or self.after
        return row.metric if row else ""


class KindReport:
    """All that a report says of one kind; the methods are those that pages call."""

    column = "attack"
    # The metrics that its own tables show; rows of any other are listed one by one.
    metrics: tuple[str, ...] = ()
    method: Passage | None = None
    # What stands above the control of a part, where parts have controls.
    part_control = ""
    # How the sentence of a verdict ends, and its clause on the whole run, where no leak was shown.
    endings: ClassVar[Mapping[Outcome, str]] = {
        Outcome.INCONCLUSIVE: "; inconclusive.",
        Outcome.NO_LEAK_FOUND: "; no leak found, which is not proof that there is none.",
    }
    clauses: ClassVar[Mapping[Outcome, str]] = {
        Outcome.INCONCLUSIVE: "whether “{}” leaks is inconclusive",
        Outcome.NO_LEAK_FOUND: "no leak of “{}” was found",
    }

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    # ---- rows ----------------------------------------------------------------------------------

    def rows(self, findings: Findings) -> list[Finding]:
        """The rows that the kind is judged by: its first metric, on all victims, per attacker."""
        rows = findings.select(kind=self.kind.name, metric=self.kind.metric, subgroup=None)
        return [row for row in rows if is_number(row.value)]

    def strongest(self, findings: Findings) -> Finding | None:
        """The row that is judged: the one whose interval begins highest."""
        rows = self.rows(findings)
        # An attacker that says the same of everything has an interval of no width.
        telling = [row for row in rows if row.low is None or row.low != row.high]
        # By the lower end of the interval: what is reached beyond doubt.
        return max(
            telling or rows,
            key=lambda row: row.low if is_number(row.low) else row.value,
            default=None,
        )

    def row(
        self, findings: Findings, metric: str, attacker: str | None = None, kind: str = ""
    ) -> Finding | None:
        """The row of a metric on all victims, of this attacker or of the first."""
        rows = findings.select(kind=kind or self.kind.name, metric=metric, subgroup=None)
        return next((row for row in rows if attacker in (None, row.attacker)), None)

    def reference(self, findings: Findings, metric: str) -> Finding | None:
        return self.row(findings, metric, kind=reference_of(self.kind.name))

    def control(self, findings: Findings, row: Finding) -> Finding | None:
        """The same measurement where there is nothing to find."""
        names = ("target", "metric", "attacker", "subgroup")
        same = {name: getattr(row, name) for name in names}
        return next(iter(findings.select(kind=control_of(row.kind), **same)), None)

    def base(self, row: Finding) -> float:
        """What needs no vectors at all."""
        # What a kind begins at is said by its record, not by its report.
        base = row.majority if self.kind.base == "majority" else row.chance
        return base if is_number(base) else 0.0

    def classify(self, findings: Findings, row: Finding) -> Judgement:
        """What the row shows against what needs no vectors and against its control."""
        # Disjoint intervals are a stricter test than p < 0.05; the best of several needs it.
        return classify(row, self.base(row), self.control(findings, row))

    # ---- in words ------------------------------------------------------------------------------

    def counted(self, findings: Findings) -> str:
        """Who is resampled, and so whose number decides how wide an interval is."""
        return f"{scored_units(findings)} among the victims"

    def verdicts(self, findings: Findings) -> list[Verdict]:
        """What was learnt of each target that is judged; nothing of kinds that are no leak."""
        return [self.verdict(findings, row) for row in self.judged(findings)]

    def judged(self, findings: Findings) -> list[Finding]:
        """The rows that have a verdict: the attacker that reached most."""
        row = self.strongest(findings)
        # Levels are gains in points: bits and distances have none.
        has_level = row is not None and self.kind.sense == "leak" and is_share(row.metric)
        return [row] if row is not None and has_level else []

    def verdict(self, findings: Findings, row: Finding) -> Verdict:
        judgement = self.classify(findings, row)
        parts = (
            self.opening(findings, row, judgement.figures) + self.ending(findings, row, judgement),
            people_words(judgement, self.counted(findings)),
            *self.additions(findings, row, judgement.figures.decimals),
        )
        return Verdict(
            **vars(judgement),
            target=self.target(row),
            statement=" ".join(filter(None, parts)),
            warnings=tuple(filter(None, self.warnings(findings, row))),
            ceiling=row.ceiling,
            degenerate=row.degenerate,
            base=self.kind.base_title,
            counted=scored_units(findings),
        )

    def target(self, row: Finding) -> str:
        return self.kind.subject

    def opening(self, findings: Findings, row: Finding, figures: Figures) -> str:
        """The verdict's sentence up to what it shows; it begins with the target."""
        score_words = f"{metric_name(row.metric)} {against(figures)}"
        return f"{self.target(row)}: {score_words} {self.kind.base_title}"

    def ending(self, findings: Findings, row: Finding, judgement: Judgement) -> str:
        """What the score shows."""
        return self.endings.get(judgement.outcome) or f"; {gains(judgement.figures)}."

    def additions(self, findings: Findings, row: Finding, digits: int) -> list[str]:
        """Sentences after the verdict's first; empty ones are left out."""
        return []

    def warnings(self, findings: Findings, row: Finding) -> list[str]:
        """Why the verdict may not be trusted; empty ones are left out."""
        return []

    def clause(self, findings: Findings) -> str:
        """Its part of the sentence on the whole run, in small letters; empty where it has none."""
        for verdict in self.verdicts(findings):
            words = self.clauses.get(verdict.outcome)
            return words.format(verdict.target) if words else self.leak_clause(findings, verdict)
        return ""

    def leak_clause(self, findings: Findings, verdict: Verdict) -> str:
        return f"“{verdict.target}” leaks ({verdict.value_words})"

    def sentences(self, findings: Findings) -> list[str]:
        """The verdict, then the control and what else stands beside it."""
        # The heading names the subject of a kind; no heading names an attribute.
        subject = f"{self.kind.subject}: "
        statements = [
            sentence_of(item.statement.removeprefix(subject))
            if item.statement.startswith(subject)
            else item.statement
            for item in self.verdicts(findings)
        ]
        return [*statements, *self.remarks(findings)]

    def remarks(self, findings: Findings) -> list[str]:
        """Beside the verdict: the control, where the leak is largest, how the row was chosen."""
        row = self.strongest(findings)
        if row is None or self.kind.sense != "leak":
            return []
        null, number = self.control(findings, row), len(self.rows(findings))
        return [
            *([self.control_remark(null)] if null is not None else []),
            *self.details(findings, row),
            *([self.choice_remark(row, number)] if number > 1 else []),
        ]

    def control_remark(self, null: Finding) -> str:
        return f"Control ({self.kind.control}): {score(null.metric, null.value)}."

    def details(self, findings: Findings, row: Finding) -> list[str]:
        return []

    def choice_remark(self, row: Finding, number: int) -> str:
        return f"Of {number} attackers the one is judged whose interval begins highest."

    def parts(self, findings: Findings, row: Finding, metric: str) -> list[Finding]:
        """The same attacker on parts of the victims' words, in the order of the findings."""
        rows = findings.select(
            kind=row.kind, target=row.target, metric=metric, attacker=row.attacker
        )
        return [item for item in rows if item.subgroup is not None and is_number(item.value)]

    def part_name(self, subgroup: str | None) -> str:
        """How a part of the victims' words is called."""
        return subgroup or ""

    # ---- on the page ---------------------------------------------------------------------------

    def section(self, findings: Findings) -> Section | None:
        """What the kind shows on the page; nothing of a kind that has no record."""
        # Nobody can say of a kind without a record how its numbers are to be read.
        if self.kind.name not in KINDS:
            return None
        heading, link = self.kind.heading or self.kind.title, sentence_of(self.kind.subject)
        return section(self.kind.name, heading, self.blocks(findings), link)

    def blocks(self, findings: Findings) -> list[Block | None]:
        """Sentences, bars and a table of all rows."""
        return [text(self.sentences(findings)), self.bars(findings), self.rest(findings)]

    def bars(self, findings: Findings) -> Bars | None:
        """Every attacker, from what needs no vectors."""
        rows = [row for row in self.rows(findings) if is_share(row.metric)]
        targets = list(dict.fromkeys(row.target for row in rows))
        items = [
            self.bar(
                findings, row, attacker_name(row.attacker), row.target if len(targets) > 1 else ""
            )
            # Bars of one target stand together, in the order of the findings.
            for row in sorted(rows, key=lambda row: targets.index(row.target))
        ]
        heading = self.kind.heading or self.kind.title
        return bars(items, heading, *self.kind.caption)

    def bar(self, findings: Findings, row: Finding, label: str, group: str = "") -> Bar:
        """A row as a bar that begins at its base, with its controls as marks."""
        return Bar(
            label=label,
            value=row.value,
            low=row.low,
            high=row.high,
            start=self.base(row),
            marks=marks_of(self.marks(findings, row)),
            tone=self.tone(findings, row),
            group=group,
        )

    def part_bars(
        self, findings: Findings, row: Finding, metric: str, title: str, caption: str
    ) -> Bars | None:
        """Each part beside its own control: few words make wide intervals."""
        items = [
            Bar(
                self.part_name(item.subgroup).removesuffix(" of words"),
                item.value,
                item.low,
                item.high,
                marks=marks_of([("null", value_of(self.control(findings, item)))]),
            )
            for item in self.parts(findings, row, metric)
        ]
        return bars(items, title, title, caption)

    def marks(self, findings: Findings, row: Finding) -> list[tuple[str, float | None]]:
        null = value_of(self.control(findings, row))
        return [(self.kind.base, self.base(row)), ("null", null), ("ceiling", row.ceiling)]

    def tone(self, findings: Findings, row: Finding) -> str:
        """The level's colour; what is no leak stays neutral."""
        return (
            f"level-{self.classify(findings, row).level}" if self.kind.sense == "leak" else "accent"
        )

    def tables(self, findings: Findings) -> list[tuple[str, Table | None]]:
        """All numbers, each table with the heading that it belongs under."""
        if type(self) is KindReport and self.kind.name in KINDS:
            return []  # they stand in its section
        return [(OTHERS, self.rest(findings))]

    def rest(self, findings: Findings) -> Table | None:
        """Rows that no table of its own shows, one by one."""
        rows = [
            row
            for row in findings
            if split_kind(row.kind)[0] == self.kind.name and row.metric not in self.metrics
        ]
        return row_table(self.kind.title, rows)

    def part_table(
        self, findings: Findings, metric: str, title: str, head: str, note: str
    ) -> Table | None:
        """A line for each part, a column for each attacker and one for its control."""
        rows = [r for r in findings.select(kind=self.kind.name, metric=metric) if r.subgroup]
        nulls = findings.select(kind=control_of(self.kind.name), metric=metric)
        # Reversed, so that the first row of a key wins.
        sides = [
            {(row.subgroup, row.attacker): row for row in reversed(side)}
            for side in ([rows, nulls] if self.part_control else [rows])
        ]
        names = list(dict.fromkeys(row.attacker for row in rows))
        lines = [
            Line(
                (
                    self.part_name(part),
                    *(cell(side.get((part, name))) for name in names for side in sides),
                )
            )
            for part in dict.fromkeys(row.subgroup for row in rows)
        ]
        heads = (word for name in names for word in (attacker_name(name), self.part_control))
        return table(title, (head, *filter(None, heads)), lines, note)

    # ---- two runs ------------------------------------------------------------------------------

    def pairs(self, before: Findings, after: Findings) -> list[Pair]:
        """Every attacker in both runs, by the metric that the kind is judged by."""
        sides = (
            {(row.target, row.attacker): row for row in self.rows(run)} for run in (before, after)
        )
        title = self.kind.comparison or self.kind.title
        return pair_up(self.kind.name, sides, lambda key: self.pair_name(*key), title)

    def pair_name(self, target: str, attacker: str | None) -> str:
        name = self.kind.subject if target == self.kind.subject else f"{target}"
        return f"{name} ({attacker_name(attacker)})" if attacker else name

    def differences(
        self, before: Findings, after: Findings, names: tuple[str, str]
    ) -> list[Table | None]:
        """Both runs and the difference, a table for each group of pairs."""
        pairs = self.pairs(before, after)
        return [
            difference_table(title, self.column, [p for p in pairs if p.table == title], names)
            for title in dict.fromkeys(pair.table for pair in pairs)
        ]


def pair_up(
    kind: str,
    sides: Iterable[Mapping[Key, Finding]],
    name: Callable[[Key], str],
    table: str,
) -> list[Pair]:
    """The rows of two runs that have the same key; the other side of a pair may be missing."""
    before, after = sides
    # Also what only one run measured: a missing row is shown as a dash, not left out.
    keys = dict.fromkeys([*before, *after])
    return [Pair(kind, name(key), before.get(key), after.get(key), table) for key in keys]


def name_with_method(key: tuple[str, str | None]) -> str:
    """What several language models were measured on has the method beside it."""
    name, method = key
    return f"{name} ({method})" if method else name


def cell(row: Finding | None) -> str:
    """A row's value and interval, marked where all guesses were the same."""
    if row is None:
        return NOTHING
    return score_with_interval(row) + (" constant" if row.degenerate else "")


def row_table(title: str, rows: Iterable[Finding]) -> Table | None:
    """Rows of any kind, each with all that bounds it."""
    columns = ("target", "attacker", "metric", "value", "chance", "commonest class", ONE_TEXT, "n")
    return table(title, columns, map(_row_line, rows), words=3)


def _row_line(row: Finding) -> Line:
    kind, (_, role) = kind_of(row.kind), split_kind(row.kind)
    # Several language models side by side are told apart by their methods.
    method = row.parameters.get("method")
    about = (row.target, row.subgroup, method_name(method) if method else None)
    target = ", ".join(filter(None, about))
    target += f" ({kind.control})" if role == "control" else ""
    target += " (reference)" if role == "reference" else ""
    bounds = (score(row.metric, value) for value in (row.chance, row.majority, row.ceiling))
    name = metric_name(row.metric)
    line = (target, attacker_name(row.attacker), name, cell(row), *bounds, count(row.n))
    return Line(line, "" if role == "score" else "control")


def difference_table(
    title: str, column: str, pairs: Sequence[Pair], names: tuple[str, str]
) -> Table | None:
    """Two runs side by side, and whether less or more of it is better."""
    if not pairs:
        return None
    # A table of unlike measures has no common direction, and then none is claimed.
    directions = {better(pair.kind, pair.metric) for pair in pairs}
    direction = directions.pop() if len(directions) == 1 else None
    note = f"{direction.capitalize()} is better." if direction else ""
    unit = "difference in points" if is_share(pairs[0].metric) else "difference"
    columns = (column, *names, unit, "intervals")
    return Table(title, columns, tuple(_pair_line(pair) for pair in pairs), note)


def _pair_line(pair: Pair) -> Line:
    before, after = pair.before, pair.after
    size = overlap = NOTHING
    # No difference between unlike measures.
    if before is not None and after is not None and before.metric == after.metric:
        size = change(before.metric, difference(before.metric, before.value, after.value))
        overlap = {None: NOTHING, True: "apart", False: "overlap"}[apart(before, after)]
    cells = (pair.name, cell(before), cell(after), size, overlap)
    return Line(cells, "control" if pair.control else "")


def apart(before: Finding, after: Finding) -> bool | None:
    """Whether the two intervals have nothing in common; None where one is missing."""
    old, now = Figures.of(before), Figures.of(after)
    if old.low is None or old.high is None or now.low is None or now.high is None:
        return None
    # Strict: intervals that touch, as they are printed, overlap.
    return now.high < old.low or old.high < now.low


def in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Names in a fixed order; those that it does not hold follow by the alphabet."""
    places = {name: place for place, name in reversed(list(enumerate(order)))}
    return sorted(set(names), key=lambda name: (places.get(name, len(order)), name))
