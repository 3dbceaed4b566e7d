"""Numbers and names as a reader says them: `78 %`, `28 points`, `gradient boosting`.

Nothing here measures: it rounds, and it says "–" for what was not measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeGuard

from capelet.data.official import PREFIX
from capelet.findings import Finding
from capelet.findings.kinds import measure_of
from capelet.findings.verdicts import TENTHS, WHOLE, Figures, rounded

# What was not measured is a dash: a 0 would be a measurement.
NOTHING = "–"

# What attackers are called, in the order in which tables list them.
ATTACKERS = {
    "strongest": "strongest",
    "committee": "committee",
    "logistic": "logistic regression",
    "mlp": "neural network",
    "boosting": "gradient boosting",
    "knn": "nearest neighbours",
    "kernel": "RBF kernel",
    "outcomes": "table of outcomes",
    "undo": "undo (inverts the map)",
    "pairs": "pairs (learnt inverse)",
    "likelihood": "likelihood of the noise",
    "auxiliary": "strongest of those taught by other data",
    "predicted-label": "predicted task label alone",
    "tf-idf": "the text itself (TF-IDF)",
    "joint-adversary": "the defence’s own adversary",
    "most-frequent": "the most frequent words, always",
    "linear": "linear probe",
    "text-cnn": "the text itself (TextCNN)",
    "window-cosine": "window similarity",
    "window-centred": "window similarity, centred",
    "dot": "dot product",
    "learned": "learned similarity",
}
SPLITS = {
    "by_author": "by author: all texts of one author lie in one part",
    "random": "at random",
    "balanced": "at random, with equal class shares in each part",
    "wasserstein": "adversarially: the victims lie far from the rest",
    "by_text": "by text: identical texts lie in one part",
    "own_texts": "from another source than the victims",
}


def split_words(kind: str) -> str:
    """How the parts were made, as the middle of a sentence."""
    if kind.startswith(PREFIX):
        column = kind.removeprefix(PREFIX)
        return f"as the column {column!r} has it: the rows for test are the victims"
    return SPLITS.get(kind, kind)


def is_number(value: float | None) -> TypeGuard[float]:
    """Whether there is a number to print."""
    return value is not None and math.isfinite(value)


def decimal(value: float, digits: int = 0) -> str:
    """The number with a true minus sign, never `-0`, halves away from zero.

    >>> decimal(-0.04, 1), decimal(12.5), decimal(-3.0)
    ('0.0', '13', '−3')
    """
    size = rounded(abs(value), digits)
    return ("−" if value < 0 and size > 0 else "") + f"{size:.{digits}f}"


def percent(value: float | None, digits: int = 0) -> str:
    """A share as per cent; a dash where there is none.

    >>> percent(0.784), percent(0.784, 1), percent(None)
    ('78 %', '78.4 %', '–')
    """
    return f"{_hundredths(value, digits)} %" if is_number(value) else NOTHING


def _hundredths(share: float, digits: int) -> str:
    """Whole per cents follow from the tenths that stand elsewhere: 54.49 is 54.5, and so 55."""
    return decimal(100 * rounded(share, max(TENTHS, digits + WHOLE)), digits)


def span(low: float | None, high: float | None, digits: int = 0) -> str:
    """An interval as per cent, or nothing at all where one end is unknown.

    >>> span(0.751, 0.809), span(None, 0.8)
    ('75–81 %', '')
    """
    if is_number(low) and is_number(high):
        return f"{_hundredths(low, digits)}–{_hundredths(high, digits)} %"
    return ""


def points(gain: float | None, digits: int = 0) -> str:
    """A difference of two shares in points.

    >>> points(0.28), points(0.012, 1), points(0.01)
    ('28 points', '1.2 points', '1 point')
    """
    if not is_number(gain):
        return NOTHING
    number = _hundredths(gain, digits)
    # Singular for what is printed, not for what was measured.
    return f"{number} point" if number in ("1", "−1") else f"{number} points"


def score(metric: str, value: float | None) -> str:
    """A score as a table prints it; the metric decides between per cent, points and plain numbers.

    >>> score("accuracy", 0.8612), score("auc", 0.8612), score("perplexity", 90.25)
    ('86.1 %', '0.861', '90.3')
    """
    if not is_number(value):
        return NOTHING
    measure = measure_of(metric)
    if measure.form == "points":
        return points(value, 1)
    # A share outside 0 to 1 is broken and is shown as it is.
    if measure.form == "share" and 0 <= value <= 1:
        return percent(value, 1)
    if measure.digits is not None:
        return decimal(value, measure.digits)
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.4g}".replace("-", "−")


def change(metric: str, difference: float | None) -> str:
    """A difference with its sign, in points where the metric is a share.

    >>> change("accuracy", -0.031), change("exposure_bits", 27.0)
    ('−3.1', '+27.0')
    """
    if not is_number(difference):
        return NOTHING
    number = (
        _hundredths(difference, 1)
        if is_share(metric)
        else decimal(difference, measure_of(metric).digits or 3)
    )
    return number if number[0] == "−" or float(number) == 0 else f"+{number}"


def difference(metric: str, before: float | None, after: float | None) -> float | None:
    """What lies between two scores as they are printed, so that whoever subtracts finds it.

    >>> difference("accuracy", 0.6496, 0.5984), difference("accuracy", None, 0.6)
    (-0.052, None)
    """
    if not (is_number(before) and is_number(after)):
        return None
    digits = TENTHS if is_share(metric) else measure_of(metric).digits or TENTHS
    return rounded(rounded(after, digits) - rounded(before, digits), digits)


def is_share(metric: str) -> bool:
    """Whether a metric lies between 0 and 100 %, so that it can be drawn as a bar."""
    return measure_of(metric).form != "number"


def score_with_interval(row: Finding) -> str:
    """`78.4 % (75.1–80.9)`: the value and, where there is one, its interval."""
    value = score(row.metric, row.value)
    if not (is_number(row.low) and is_number(row.high)):
        return value
    ends = [row.low, row.high]
    if measure_of(row.metric).form == "share" and 0 <= row.value <= 1:
        # An interval about a mean may reach beyond what a share can be.
        ends = [min(max(end, 0.0), 1.0) for end in ends]
    # The unit once, behind the value.
    low, high = (re.sub(r" (%|points?)$", "", score(row.metric, end)) for end in ends)
    return f"{value} ({low}–{high})"


def figure(row: Finding | Figures, digits: int = 0, what: str = "") -> str:
    """`78 % (95 % interval 75–81 %)`: a share as a sentence says it, and of what."""
    interval = span(row.low, row.high, digits)
    value = percent(row.value, digits) + what
    return f"{value} (95 % interval {interval})" if interval else value


def metric_name(metric: str) -> str:
    return measure_of(metric).title


def attacker_name(attacker: str | None) -> str:
    if attacker is None:
        return NOTHING
    # mlp:depth=3,width=200 is a neural network (depth 3, width 200).
    base, colon, sizes = attacker.partition(":")
    if not colon or base not in ATTACKERS:
        return ATTACKERS.get(attacker, attacker)
    shape = sizes.replace(",", ", ").replace("=", " ")
    return f"{ATTACKERS[base]} ({shape})"


def sentence_of(words: str) -> str:
    """The words with a capital letter at their head."""
    return words[:1].upper() + words[1:]


def join_names(names: Sequence[str]) -> str:
    """`gender, age and topic`."""
    if len(names) < 2:
        return "".join(names)
    return ", ".join(names[:-1]) + " and " + names[-1]


def quote_names(names: Iterable[str]) -> str:
    """`“gender” and “age”`."""
    return join_names([f"“{name}”" for name in names])


def group_names(
    pairs: Iterable[tuple[Any, str]], clauses: Mapping[Any, str], between: str = "; "
) -> str:
    """One clause for each key that has names, so that a sentence stays short with many of them.

    >>> group_names([(1, "age"), (2, "sex")], {2: "{} still {leak}", 1: "no leak of {}"})
    '“sex” still leaks; no leak of “age”'
    """
    items = list(pairs)
    groups = {key: [name for other, name in items if other == key] for key in clauses}
    return between.join(
        clauses[key].format(quote_names(names), leak="leaks" if len(names) == 1 else "leak")
        for key, names in groups.items()
        if names
    )


def count(number: Any) -> str:
    """A whole number with groups of three: `12,540`.

    >>> count(12540), count(None), count(7)
    ('12,540', '–', '7')
    """
    # Findings come from JSON: whatever else stands there is printed as it is.
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        return NOTHING if number is None else str(number)
    return f"{number:,.0f}"


def duration(seconds: Any) -> str:
    """Seconds as a person says them: `0.4 s`, `20 s`, `3 min 20 s`."""
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return NOTHING
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def day(time: Any) -> str:
    """`15 November 2026, 09:00 UTC` from an ISO time; any other text as it is."""
    try:
        moment = datetime.fromisoformat(str(time))
    except ValueError:
        return str(time)
    # Without a zone nobody knows which: none is claimed.
    if moment.tzinfo is None:
        return f"{moment.day} {moment:%B %Y, %H:%M}"
    moment = moment.astimezone(UTC)
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"
