"""Gates: what a build may do after an audit, and a sentence that says what was shown.

`--fail-over P` stops what was *shown to leak more* than P over chance; it passes for lack of data
too, and its sentence then says so. `--require-under P` lets through only what was *shown to leak
less*; what is neither is inconclusive, and so is a score of fewer people than `--min-victims`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from capelet.errors import DataError, name_field
from capelet.findings import Finding, Findings
from capelet.findings.verdicts import Figures, Side, classify, people_of, side_of
from capelet.reports.facts import scored_units
from capelet.reports.formatting import count, join_names, points, sentence_of
from capelet.reports.kinds.attribute_inference import LEAK, strongest, unmeasured_attributes
from capelet.reports.verdict import people_words, targets


class Decision(IntEnum):
    """What a gate says; the number is the exit code of a command."""

    PASSED = 0
    FAILED = 1
    INCONCLUSIVE = 3


@dataclass(frozen=True)
class Ruling:
    """One gate's decision, why, and which attributes it is about."""

    gate: str
    decision: Decision
    reason: str
    attributes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return f"gate {self.gate}: {self.decision.name.lower()}. {self.reason}"


@dataclass(frozen=True)
class Gates:
    """The limits that were asked for, all in gains of balanced accuracy over chance."""

    fail_over: float | None = None
    require_under: float | None = None
    min_victims: int | None = None

    def __post_init__(self) -> None:
        # A gain over chance cannot reach 1, so such a gate would never close, or never open.
        for name, limit in (("fail_over", self.fail_over), ("require_under", self.require_under)):
            if limit is not None and not 0 <= limit < 1:
                raise DataError(
                    f"{name_field(name)} is a gain in balanced accuracy from 0 to 1, and is "
                    f"{limit:g}"
                )
        if self.require_under == 0:
            raise DataError(
                f"{name_field('require_under')} is 0, which no interval can lie under; give 0.05"
            )
        if self.min_victims is not None and self.min_victims < 1:
            raise DataError(
                f"{name_field('min_victims')} must be at least 1, and is {self.min_victims}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The gates that were given."""
        fields = ("fail_over", "require_under", "min_victims")
        return tuple(name for name in fields if getattr(self, name) is not None)

    def rule(self, findings: Findings) -> list[Ruling]:
        """What each gate says of the attributes of a run."""
        rows = [row for target in targets(findings, LEAK) if (row := strongest(findings, target))]
        missing = unmeasured_attributes(findings)
        counted = scored_units(findings)
        rulings = []
        if self.fail_over is not None:
            rulings.append(_fail_over(rows, self.fail_over))
        if self.require_under is not None:
            rulings.append(_require_under(rows, self.require_under, missing, counted))
        if self.min_victims is not None:
            rulings.append(_min_victims(rows, self.min_victims, missing, counted))
        return rulings


def decide(rulings: list[Ruling]) -> Decision:
    """The decision of all gates together: a failure counts most, then what is not known."""
    order = (Decision.FAILED, Decision.INCONCLUSIVE, Decision.PASSED)
    return min((ruling.decision for ruling in rulings), key=order.index, default=Decision.PASSED)


def _fail_over(rows: list[Finding], limit: float) -> Ruling:
    name, size = f"{name_field('fail_over', f'{limit:g}')}", points(limit, 1)
    if over := [row for row in rows if side_of(row, limit) is Side.OVER]:
        return _failure(name, over, size)
    open_rows = [row for row in rows if side_of(row, limit) is not Side.UNDER]
    reason = f"No attacker was shown to gain more than {size} over chance"
    # An open gate is no proof: what the interval leaves room for is said beside it.
    reason += (
        f", and none was shown to gain less on {join_names(_names(open_rows))}: {_rooms(open_rows)}"
        if open_rows
        else f"; all were shown to gain less: {_rooms(rows)}"
    )
    return Ruling(name, Decision.PASSED, f"{reason}.")


def _require_under(rows: list[Finding], limit: float, missing: list[str], counted: str) -> Ruling:
    name, size = f"{name_field('require_under', f'{limit:g}')}", points(limit, 1)
    sides = {side: [row for row in rows if side_of(row, limit) is side] for side in Side}
    if over := sides[Side.OVER]:
        return _failure(name, over, size)
    unclear = sides[Side.UNCLEAR]
    if unclear or missing or not rows:
        parts = [f"Not shown to lie under {size} over chance, nor over it: {_rooms(unclear)}."]
        parts = parts if unclear else []
        needs = {
            row.target: people_words(classify(row), f"{counted} among the victims")
            for row in unclear
        }
        parts += [f"{target}: {words}" for target, words in needs.items() if words]
        parts += [f"Not measured: {join_names(missing)}."] if missing else []
        reason = " ".join(parts) or "No attribute was measured."
        return Ruling(name, Decision.INCONCLUSIVE, reason, (*_names(unclear), *missing))
    reason = f"Shown with 95 % confidence to gain less than {size} over chance, by these attackers"
    return Ruling(name, Decision.PASSED, f"{reason}: {_rooms(rows)}.")


def _min_victims(rows: list[Finding], least: int, missing: list[str], counted: str) -> Ruling:
    name = name_field("min_victims", least)
    few = [row for row in rows if (people_of(row) or 0) < least]
    sizes = join_names([f"{row.target} {count(people_of(row))}" for row in few or rows])
    if few or missing or not rows:
        reason = f"Too few {counted} were scored: {sizes}." if few else "Nothing was measured."
        names = (*_names(few), *missing)
        return Ruling(name, Decision.INCONCLUSIVE, reason, names)
    return Ruling(name, Decision.PASSED, f"{sentence_of(counted)} scored: {sizes}.")


def _names(rows: list[Finding]) -> tuple[str, ...]:
    return tuple(row.target for row in rows)


def _failure(gate: str, rows: list[Finding], size: str) -> Ruling:
    """Rows that were shown to gain more than a limit, with the least that each gains."""
    floors = [f"{row.target} (at least {points(Figures.of(row).low_gain, 1)})" for row in rows]
    reason = f"Shown with 95 % confidence to gain more than {size} over chance"
    return Ruling(gate, Decision.FAILED, f"{reason}: {join_names(floors)}.", _names(rows))


def _rooms(rows: list[Finding]) -> str:
    """What each interval leaves room for."""
    parts = []
    for row in rows:
        room = Figures.of(row).high_gain
        words = f"at most {points(max(room, 0.0), 1)}" if room is not None else "unknown"
        parts.append(f"{row.target} ({'all guesses the same' if row.degenerate else words})")
    return join_names(parts)
