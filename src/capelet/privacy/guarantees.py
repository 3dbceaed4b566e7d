"""Guarantees as data: how they add up, and the ceiling they put on every attacker and every task.

A guarantee says what holds (ε, δ), in which notion, for which unit, and whether that is proven. A
release without noise carries `NONE`. Three ways to put guarantees together:

- `compose`: several releases about the same person. ε and δ add; unlike things are refused.
- `parallel`: releases about different people. The largest counts.
- `chain`: noise upon noise, of which only the last result is let out. The strongest counts.

A ceiling (`ceiling`, `ceiling_auc` …) is the best score of *anyone*, with any method, under the
guarantee, *from one text*; `composition` has those from several texts of one person. It assumes
that the release depends on the secret only through the text, that the encoder does not depend on
the victim's text, and that there is no side information.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from capelet.errors import CapeletError

Notion = Literal["none", "local", "metric", "central"]
Unit = Literal["author", "text", "word", "record"]
Status = Literal["proven", "claimed", "broken", "none"]
Neighbours = Literal["", "add-remove", "replace"]

# From the weakest to the strongest: a composition is worth as much as its weakest part.
_RANKS: list[Status] = ["none", "broken", "claimed", "proven"]
# What hides a coarser unit hides each finer one; a record is whatever its training calls one.
_FINER: dict[Unit, tuple[Unit, ...]] = {
    "author": ("author", "text", "word"),
    "text": ("text", "word"),
    "word": ("word",),
    "record": (),
}


def _shown(value: Any) -> str:
    """A number as it is; of anything else the type, for it may be somebody's text."""
    is_number = isinstance(value, int | float | np.number | np.bool_)
    return repr(value) if is_number else f"a {type(value).__name__}"


def check_number(
    name: str, value: Any, low: float, high: float, *, open_low: bool = False
) -> float:
    """The number as a float, or an error that says what was found and what is wanted.

    >>> check_number("epsilon", 2, 0.0, 10.0)
    2.0
    """
    number = not isinstance(value, bool | np.bool_) and isinstance(
        value, int | float | np.integer | np.floating
    )
    inside = number and (low < value if open_low else low <= value) and value <= high
    if not inside:
        least = f"more than {low:g}" if open_low else f"at least {low:g}"
        most = "finite" if high >= 1e300 else f"at most {high:g}"
        raise CapeletError(f"{name} is {_shown(value)}; it must be a number, {least} and {most}")
    return float(value)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """The whole number, or an error that says what was found.

    >>> check_count("classes", 3)
    3
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise CapeletError(
            f"{name} is {_shown(value)}; it must be a whole number, at least {least}"
        )
    return int(value)


@dataclass(frozen=True)
class Guarantee:
    """What a release promises: (ε, δ) in a notion of privacy, for a unit, with a status.

    `metric` names the distance of metric privacy, `neighbours` the relation of central privacy, and
    `caveat` what the proof leaves out. All of it speaks of the texts that *pass*. Where something
    on the road was learnt from private texts, `training` is what those texts are promised: `NONE`,
    or a central guarantee of the training. It is None where nothing was learnt from anyone.

    >>> Guarantee(epsilon=2.0, notion="local", unit="text", status="proven").sentence()
    '2-local differential privacy for each text (proven)'
    >>> Guarantee(epsilon=2.0, training=NONE).sentence()
    '2-local differential privacy for each text that passes (proven); training texts: no guarantee'
    """

    epsilon: float
    delta: float = 0.0
    notion: Notion = "local"
    unit: Unit = "text"
    status: Status = "proven"
    metric: str = ""
    neighbours: Neighbours = ""
    caveat: str = ""
    training: Guarantee | None = None

    def __post_init__(self) -> None:
        if self.notion == "none":
            return
        most = np.finfo(float).max
        object.__setattr__(
            self, "epsilon", check_number("epsilon", self.epsilon, 0, most, open_low=True)
        )
        object.__setattr__(self, "delta", check_number("delta", self.delta, 0.0, 1.0))

    def sentence(self) -> str:
        """The promise in words, as reports print it."""
        passing = self._passing_sentence()
        if self.training is None:
            return passing
        if self.training.notion == "none":
            return f"{passing}; training texts: no guarantee"
        both = self.for_training_texts()
        further = "" if both is None else f"; a text that trained and passes: {_amount(both)}"
        return f"{passing}; training texts: {self.training.sentence()}{further}"

    def for_training_texts(self) -> Guarantee | None:
        """What holds of a text that trained *and* passes, against replacing it: both together.

        The map is (ε_θ, δ_θ)-private for replacing the text, the release ε-private given the map;
        so both are (ε_θ + ε, δ_θ + δ). None where one of the two promises nothing of that kind.
        """
        training = self.training
        if training is None or (self.notion, self.unit) != ("local", "text"):
            return None
        if (training.notion, training.neighbours) != ("central", "replace"):
            return None
        # What hides an author hides each text of theirs.
        return replace(
            training,
            epsilon=self.epsilon + training.epsilon,
            delta=min(1.0, self.delta + training.delta),
            unit="text",
            status=min((self.status, training.status), key=_RANKS.index),
        )

    def _passing_sentence(self) -> str:
        if self.notion == "none":
            reason = "the vectors are released as they are"
            if self.training is not None:
                reason = "a map was learnt, and no noise is added"
            return f"no guarantee: {reason}"
        amount = _amount(self)
        of = f" per unit of {self.metric} distance" if self.metric else ""
        where = f" under {self.neighbours} neighbours" if self.neighbours else ""
        status = f"{self.status}; {self.caveat}" if self.caveat else self.status
        kind = f"{self.notion} differential privacy{of}"
        # Only where some texts trained must those that pass be told from them.
        passing = " that passes" if self.training is not None else ""
        return f"{amount}-{kind} for each {self.unit}{passing}{where} ({status})"

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON holds them; an infinite ε is null, for JSON has no infinity."""
        content = {item.name: getattr(self, item.name) for item in fields(self)}
        content["epsilon"] = None if self.notion == "none" else self.epsilon
        content["training"] = None if self.training is None else self.training.to_json()
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Guarantee:
        """What `to_json` gave, with every field of it.

        >>> Guarantee.from_json(Guarantee(2.0, training=NONE).to_json()).training == NONE
        True
        """
        try:
            missing = {item.name for item in fields(cls)} - set(content)
            if missing:
                raise KeyError(missing)
            training = content["training"]
            part = None if training is None else cls.from_json(training)
            if content["notion"] == "none":
                return replace(NONE, training=part)
            return cls(**{**content, "training": part})
        # Anybody may have written the file; what stands there is not repeated.
        except (AttributeError, KeyError, TypeError, ValueError):
            raise CapeletError(
                "what is written down is not a guarantee as Capelet writes it; use the file as it "
                "was made"
            ) from None

    def with_caveat(self, *caveats: str, first: bool = False) -> Guarantee:
        """The same with more that the proof leaves out, `first` or behind what it left out."""
        own = [*caveats, self.caveat] if first else [self.caveat, *caveats]
        return replace(self, caveat="; ".join(filter(None, own)))

    def repeated(self, releases: int) -> Guarantee:
        """What so many releases under it promise together: r·ε and r·δ.

        >>> Guarantee(0.5, delta=1e-6).repeated(4).epsilon
        2.0
        """
        delta = min(1.0, releases * self.delta)
        return replace(self, epsilon=releases * self.epsilon, delta=delta)

    def for_unit(self, unit: Unit) -> Guarantee:
        """The same ε for a finer unit: what hides a whole text hides each word of it.

        >>> Guarantee(2.0).for_unit("word").unit
        'word'
        """
        if unit == self.unit or (self.notion == "local" and unit in _FINER[self.unit]):
            return replace(self, unit=unit)
        raise CapeletError(
            f"a guarantee for each {self.unit} says nothing about each {unit}; "
            "only a coarser unit covers a finer one (text covers word)"
        )

    def for_words(self, count: int) -> Guarantee:
        """What a local guarantee for one word promises when `count` words change: count·ε.

        δ grows by (e^(count·ε) − 1)/(e^ε − 1), as group privacy demands. A text of at most `count`
        words is covered as a whole, if the number of its words is public.
        """
        check_count("count", count)
        if self.notion != "local" or self.unit != "word":
            raise CapeletError("for_words needs a local guarantee for the unit 'word'")
        # (e^(kε) − 1)/(e^ε − 1) as the geometric sum that it is; 700 keeps e^x finite, and such a δ
        # is cut to 1 anyway.
        growth = sum(math.exp(min(i * self.epsilon, 700.0)) for i in range(count))
        delta = min(1.0, self.delta * growth) if self.delta else 0.0
        return replace(self, epsilon=count * self.epsilon, delta=delta, unit="text")


def _amount(guarantee: Guarantee) -> str:
    epsilon, delta = guarantee.epsilon, guarantee.delta
    return f"{epsilon:g}" if delta == 0 else f"({epsilon:g}, {delta:g})"


NONE = Guarantee(epsilon=math.inf, notion="none", status="none")


SEEDED_CAVEAT = "the noise was seeded, so nothing is promised"


def as_seeded(guarantee: Guarantee) -> Guarantee:
    """What is left of it where the noise came from a seed: whoever knows that can subtract it.

    >>> as_seeded(Guarantee(2.0)).status
    'none'
    """
    if guarantee.notion == "none":
        return guarantee
    return replace(guarantee.with_caveat(SEEDED_CAVEAT, first=True), status="none")


def compose(parts: Sequence[Guarantee]) -> Guarantee:
    """What holds of several releases of one unit together: ε and δ add, unlike things do not.

    One release without a guarantee leaves none.

    >>> compose([Guarantee(1.0), Guarantee(2.0, delta=1e-6)]).epsilon
    3.0
    """
    if not parts or any(part.notion == "none" for part in parts):
        return NONE
    # Most people in a store have one promise, and it is asked for with every charge.
    if len(parts) == 1:
        return parts[0]
    _alike(parts)
    epsilon = math.fsum(part.epsilon for part in parts)
    delta = min(1.0, math.fsum(part.delta for part in parts))
    return _together(parts, epsilon, delta)


def parallel(parts: Sequence[Guarantee]) -> Guarantee:
    """What holds of each person when every release is about *another* person: the maximum.

    >>> parallel([Guarantee(1.0), Guarantee(2.0)]).epsilon
    2.0
    """
    if not parts or any(part.notion == "none" for part in parts):
        return NONE
    _alike(parts)
    return _together(parts, max(p.epsilon for p in parts), max(p.delta for p in parts))


def chain(parts: Sequence[Guarantee]) -> Guarantee:
    """What holds of noise upon noise when only the last result is let out: the strongest of them.

    Each noise step keeps its promise whatever goes in, and what comes after it is post-processing;
    so all of them hold at once. Of unlike ones, a local guarantee for whole texts comes first: it
    alone bounds what can be learnt. Statuses are not mixed: a proven one precedes a claimed one.

    >>> chain([Guarantee(1.0), Guarantee(2.0)]).epsilon
    1.0
    """
    promises = [part for part in parts if part.notion != "none"]
    if not promises:
        return NONE
    notions = ["local", "central", "metric"]
    units = ["author", "text", "record", "word"]

    def order(part: Guarantee) -> tuple[int, int, int, float, float]:
        # The status first: a small ε that is only claimed is worth less than a proven one.
        rank = -_RANKS.index(part.status)
        kind = notions.index(part.notion), units.index(part.unit)
        return (rank, *kind, part.epsilon, part.delta)

    return min(promises, key=order)


def link_releases(guarantee: Guarantee, releases: int) -> Guarantee:
    """What holds when an attacker can tie `releases` releases to one secret: r·ε and r·δ.

    Count the same text again *and* other texts of the same author.
    """
    return compose([guarantee] * check_count("releases", releases))


def _alike(parts: Sequence[Guarantee]) -> None:
    """Refuse parts that differ in notion, unit, metric or neighbours."""
    kinds = {(part.notion, part.unit, part.metric, part.neighbours) for part in parts}
    if len(kinds) > 1:
        names = " and ".join(
            sorted(f"{notion} ({', '.join(filter(None, rest))})" for notion, *rest in kinds)
        )
        raise CapeletError(
            f"guarantees of different notions, units, metrics or neighbours do not add up: {names}"
            "; for_unit('word') turns one for texts into one for words"
        )
    for notion, field in (("metric", "metric"), ("central", "neighbours")):
        if len(parts) > 1 and parts[0].notion == notion and not getattr(parts[0], field):
            raise CapeletError(f"{notion} guarantees add up only when they name one {field!r}")


def compose_trainings(parts: Sequence[Guarantee | None]) -> Guarantee | None:
    """What training texts are promised by several learnt parts: they add up; one without is none.

    Two trainings with equal ε are still two: nothing here can know that they are one.
    """
    trainings = [part for part in parts if part is not None]
    return compose(trainings) if trainings else None


def _together(parts: Sequence[Guarantee], epsilon: float, delta: float) -> Guarantee:
    return replace(
        parts[0],
        epsilon=epsilon,
        delta=delta,
        status=min((part.status for part in parts), key=_RANKS.index),
        caveat="; ".join(dict.fromkeys(part.caveat for part in parts if part.caveat)),
        training=compose_trainings([part.training for part in parts]),
    )


# ---- ceilings ------------------------------------------------------------------------------------


def whole_text(
    guarantee: Guarantee, words: int | None = None, diameter: float | None = None
) -> Guarantee | None:
    """The local guarantee for a whole text that this one implies; None where there is none.

    A word guarantee needs the largest number of `words`; a metric one the `diameter`, the largest
    distance between two inputs, summed over the words. Only what is proven counts.
    """
    if guarantee.status != "proven":
        return None
    # Whoever hides all texts of an author hides each of them.
    if guarantee.notion == "local" and guarantee.unit in ("text", "author"):
        return guarantee.for_unit("text")
    if guarantee.notion == "local" and guarantee.unit == "word" and words is not None:
        return guarantee.for_words(words)
    if guarantee.notion == "metric" and diameter is not None and guarantee.delta == 0:
        # The loss is ε·d(x, x'), and no two inputs lie farther apart than the diameter.
        span = check_number("diameter", diameter, 0.0, np.finfo(float).max, open_low=True)
        return Guarantee(guarantee.epsilon * span, caveat=guarantee.caveat)
    return None


def ceiling(prior: Sequence[float], guarantee: Guarantee) -> float | None:
    """The best accuracy of anyone who guesses a secret with this prior from one text.

    For (ε, δ)-local privacy of whole texts it is δ + (1−δ)·max over m of e^ε/(e^ε+m−1) · (sum of
    the m largest priors), and m-ary randomised response attains it. It bounds the attacker and the
    user's own task alike. None where no such bound is known: see `whole_text`; for a person who
    wrote several texts, see `composition.person_ceiling`.

    >>> local = Guarantee(epsilon=2.0)
    >>> round(ceiling([0.744, 0.15, 0.05, 0.03, 0.026], local), 3)
    0.787
    """
    local = whole_text(guarantee)
    if local is None:
        return None
    mass = np.cumsum(_descending(prior))
    # e^ε/(e^ε + m − 1), written so that a large ε cannot overflow.
    best = float(np.max(mass / (1.0 + np.arange(mass.size) * math.exp(-local.epsilon))))
    # With probability δ everything may be lost; else the bound of ε alone holds.
    return local.delta + (1.0 - local.delta) * min(best, 1.0)


def ceiling_balanced(classes: int, guarantee: Guarantee) -> float | None:
    """The best balanced accuracy from one text: the ceiling of a uniform prior."""
    check_count("classes", classes)
    return ceiling([1.0 / classes] * classes, guarantee)


def ceiling_top(n: int, classes: int, guarantee: Guarantee) -> float | None:
    """The best chance that one of n guesses is right from one text, of k equally likely values.

    It is (n·e^ε + δ(k − 1))/(n·e^ε + k − n), at most 1, and subset selection attains it (Ye, Barg
    2018). δ counts n times here: whoever may lose one value with probability δ names n of them.

    >>> round(ceiling_top(5, 100, Guarantee(1.0)), 4)
    0.1252
    """
    local = whole_text(guarantee)
    least = min(check_count("n", n), check_count("classes", classes))
    if local is None:
        return None
    # Numerator and denominator are multiplied by e^−ε, so that a large ε cannot overflow.
    odds = math.exp(-local.epsilon)
    best = least + local.delta * (classes - 1) * odds
    return min(1.0, best / (least + (classes - least) * odds))


def ceiling_auc(guarantee: Guarantee) -> float | None:
    """The largest area under the ROC curve from one text (two classes): 1 − (1−δ)²/(1+e^ε)."""
    local = whole_text(guarantee)
    if local is None:
        return None
    # The area under the trade-off curve of (ε, δ): two lines that meet at FPR = (1 − δ)/(1 + e^ε).
    odds = math.exp(-local.epsilon)
    return 1.0 - (1.0 - local.delta) ** 2 * odds / (1.0 + odds)


def ceiling_advantage(guarantee: Guarantee) -> float | None:
    """The largest true minus false positive rate from one text: (e^ε − 1 + 2δ)/(e^ε + 1).

    >>> round(ceiling_advantage(Guarantee(1.0)), 3)
    0.462
    """
    local = whole_text(guarantee)
    if local is None:
        return None
    # Numerator and denominator are multiplied by e^−ε, so that a large ε cannot overflow.
    odds = math.exp(-local.epsilon)
    return (1.0 - odds + 2.0 * local.delta * odds) / (1.0 + odds)


def _descending(prior: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The prior, largest first, checked to be one."""
    shares = np.sort(np.asarray(prior, dtype=float).ravel())[::-1]
    if not shares.size or not np.isfinite(shares).all() or shares[-1] < 0:
        raise CapeletError("a prior needs one finite share per class, none of them negative")
    if abs(shares.sum() - 1.0) > 1e-6:
        raise CapeletError(
            f"the shares of a prior must add up to 1; they add up to {shares.sum():g}"
        )
    return shares


# ---- calibration: give a target, get the parameter -----------------------------------------------


def epsilon_for(prior: Sequence[float], accuracy: float) -> float:
    """The ε at which the ceiling reaches `accuracy`: the most that keeps anyone at or below it.

    Also the least at which a task *can* reach it. 0 where the majority class already does, infinite
    where no finite ε permits it.

    >>> round(epsilon_for([0.5, 0.5], 0.731), 3)
    1.0
    """
    target = check_number("accuracy", accuracy, 0.0, 1.0)
    shares = _descending(prior)
    if target <= shares[0]:
        return 0.0
    mass = np.minimum(np.cumsum(shares), 1.0)
    # The ceiling solved for e^ε with m + 1 classes named: e^ε·mass = target·(e^ε + m).
    odds = [m * target / (mass[m] - target) for m in range(1, shares.size) if mass[m] > target]
    return math.log(min(odds)) if odds else math.inf


def least_epsilon(prior: Sequence[float]) -> float:
    """The ε that must be exceeded before anyone can beat the majority class: ln(π₁/π₂), if δ = 0.

    >>> round(least_epsilon([0.525, 0.475]), 3)
    0.1
    """
    shares = _descending(prior)
    if shares.size < 2 or shares[1] == 0:
        return math.inf
    # e^ε/(e^ε + 1)·(π₁ + π₂) exceeds π₁ exactly where e^ε > π₁/π₂.
    return float(np.log(shares[0] / shares[1]))


def gaussian_delta(sigma: float, epsilon: float, sensitivity: float = 1.0) -> float:
    """The δ of Gaussian noise at ε, exactly (Balle and Wang 2018, theorem 8).

    δ(ε) = Φ(Δ/2σ − εσ/Δ) − e^ε·Φ(−Δ/2σ − εσ/Δ), computed without cancellation.
    """
    from scipy.special import log_ndtr

    ratio = sensitivity / sigma
    # In logarithms: for a small δ both terms are far smaller than their rounding errors would be.
    first = float(log_ndtr(ratio / 2 - epsilon / ratio))
    second = epsilon + float(log_ndtr(-ratio / 2 - epsilon / ratio))
    return -math.exp(first) * math.expm1(min(second - first, 0.0))


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """The least σ of Gaussian noise that is (ε, δ)-private, a billionth rounded up.

    >>> round(gaussian_sigma(1.0, 1e-5), 2)
    3.73
    """
    most = np.finfo(float).max
    target = check_number("epsilon", epsilon, 0, most, open_low=True)
    share = check_number("delta", delta, 0, 1 - 2.0**-53, open_low=True)
    # δ falls as σ grows: double and halve until σ is enclosed, then bisect. The upper end is
    # returned, so the rounding errs on the side of more noise.
    low = high = 1.0
    while gaussian_delta(high, target) > share:
        high *= 2
    while gaussian_delta(low, target) <= share:
        low /= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, target) > share else (low, middle)
    return high * (1 + 1e-9) * check_number("sensitivity", sensitivity, 0, most, open_low=True)


def laplace_scale(epsilon: float, sensitivity: float = 2.0) -> float:
    """The scale of Laplace noise that is ε-private at an L1 sensitivity: Δ/ε."""
    most = np.finfo(float).max
    span = check_number("sensitivity", sensitivity, 0, most, open_low=True)
    return span / check_number("epsilon", epsilon, 0, most, open_low=True)
