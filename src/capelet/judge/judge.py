"""`verify`: does a mechanism keep its claim? A verdict in words, with the worst event found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from capelet.errors import CapeletError
from capelet.interfaces import Progress, silent
from capelet.judge.bounds import Claim, Tradeoff
from capelet.judge.calls import Source
from capelet.judge.event_search import Event, Finalist, Tally, count_hits, search
from capelet.judge.pairs import WORDS, Distance, Pair, Plane, corners, own_pairs
from capelet.mechanisms import Gaussian
from capelet.privacy.guarantees import Guarantee, check_count, check_number
from capelet.release import PrivateEncoder

LEAST_SAMPLES = 1000
# Wide enough for an error of √d to show (fourfold), narrow enough for a million draws.
DIMENSION = 16


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the judge found: the largest loss it could prove, and whether the claim survives it.

    `lower_bound` holds with `confidence`, for one pair and one event that were chosen on other
    outputs than were counted. `claimed` and `lower_bound` are per unit of the pair's distance.
    `hits` says how often the event came from the input that makes it likelier and from the other,
    of `counted` outputs of both, each of which had its input by a fair coin. `reach` is the most
    that the outputs could have shown: a pass says nothing about losses above it.
    """

    subject: str
    claimed: float
    delta: float
    lower_bound: float
    confidence: float
    tradeoff: Tradeoff
    pair: Pair
    event: str
    hits: tuple[int, int]
    counted: int
    reach: float
    pairs_tried: int
    events_tried: int

    @property
    def passed(self) -> bool:
        """Whether what could be proven stays within the claim."""
        return self.lower_bound <= self.claimed

    @property
    def sentence(self) -> str:
        """The verdict in words, for a reader who sees nothing else."""
        claim = f"ε = {self.claimed:g}" + (f", δ = {self.delta:g}" if self.delta else "")
        sure = f"with {100 * self.confidence:g} % confidence"
        if self.tradeoff == "gaussian":
            sure += ", taking its noise to be normal"
        loss = f"{self.subject} loses at least ε = {self.lower_bound:.3g} {sure}"
        where = f"the pair {self.pair.name}, the event {self.event}"
        if not self.passed:
            counts = f"{self.hits[0]:,} against {self.hits[1]:,} of {self.counted:,} outputs"
            return f"The claim {claim} is false: {loss} ({where}: {counts})."
        return (
            f"The claim {claim} stands: {loss}, and no more was found. The worst of "
            f"{self.events_tried:,} events on {self.pairs_tried} pairs was {where}. This is a "
            f"test, not a proof: {self.counted:,} outputs can show at most ε = {self.reach:.3g}."
        )

    def describe(self) -> dict[str, Any]:
        """The verdict as plain values, for JSON."""
        plain = {item.name: getattr(self, item.name) for item in fields(self)}
        plain["pair"] = {
            "name": self.pair.name,
            "first": _plain(self.pair.first),
            "second": _plain(self.pair.second),
            "distance": self.pair.distance,
        }
        plain["hits"] = list(self.hits)
        return {"passed": self.passed, "sentence": self.sentence, **plain}


def verify(
    mechanism: Callable[[Any], Any],
    claimed: float | None = None,
    delta: float | None = None,
    samples: int = 1_000_000,
    dimension: int | None = None,
    *,
    pairs: Sequence[tuple[Any, Any]] | None = None,
    distance: Distance | None = None,
    confidence: float = 0.999,
    tradeoff: Tradeoff | None = None,
    progress: Progress = silent,
) -> Verdict:
    """Try to prove that a mechanism loses more than it claims; a failed try is a pass.

    The claim under test: whatever comes out of a call, and of other calls, is (ε, δ)-private in
    each row for *any* input (normalisation belongs to the mechanism); the other rows are public.
    A true claim fails with probability at most 1 − `confidence`.

    - `mechanism`: (n, d) vectors in, (n, d) out; or n texts in, n texts or (n, k) vectors out,
      which needs `pairs=[(text, text)]`. Own pairs of vectors may be given likewise, where only
      they are covered by the claim.
    - `claimed`, `delta`: by default what `mechanism.guarantee` states.
    - `samples`: outputs of each side; half of them, spread over all pairs, choose the pairs and the
      events, one for each family of faults, and half are counted.
    - `dimension`: the width of the vectors tried; by default the mechanism's own, or 16.
    - `distance`: makes `claimed` an ε per unit of distance (metric privacy): a number, or a
      function of two inputs. By default `mechanism.distance`, where the guarantee is metric.
    - `tradeoff`: "gaussian" takes the noise to be normal; the default for `Gaussian` alone.

    >>> from capelet.mechanisms import Laplace
    >>> verify(Laplace(epsilon=1), samples=20_000, dimension=4, confidence=1 - 1e-7).passed
    True
    """
    if not callable(mechanism):
        raise CapeletError(
            f"{type(mechanism).__name__} cannot be called; give a mechanism, or use verify_recipe "
            "for a private encoder"
        )
    claim = _claim(mechanism, claimed, delta, confidence, tradeoff)
    total = check_count("samples", samples, LEAST_SAMPLES)
    candidates = _pairs(mechanism, dimension, pairs, distance)
    if claim.tradeoff == "gaussian" and any(pair.distance != 1.0 for pair in candidates):
        raise CapeletError("the gaussian trade-off knows no distance; leave tradeoff or distance")
    # Half chooses, half is counted. The count judges a few events that were fixed before, one of
    # each family, so it is corrected for these few and not for the thousands that were looked at.
    source, count = Source(mechanism), total // 2
    worst = search(source, candidates, claim, total - count, progress)
    tallies = count_hits(source, worst.finalists, progress)
    cases = zip(worst.finalists, tallies, strict=True)
    counts = [_prove(finalist, tally, claim) for finalist, tally in cases]
    best = max(counts, key=lambda case: case.lower_bound)
    return Verdict(
        subject=_name(mechanism),
        claimed=claim.epsilon,
        delta=claim.delta,
        lower_bound=best.lower_bound,
        confidence=claim.confidence,
        tradeoff=claim.tradeoff,
        pair=best.event.setting.pair,
        event=best.event.sentence(),
        hits=best.tally.hits,
        counted=sum(best.tally.counts),
        reach=max(case.reach for case in counts),
        pairs_tried=len(candidates),
        events_tried=worst.events,
    )


@dataclass(frozen=True, eq=False)
class _Count:
    """One event of the final count, what it proves, and the most that it could have proven."""

    event: Event
    tally: Tally
    lower_bound: float
    reach: float


def _prove(finalist: Finalist, tally: Tally, claim: Claim) -> _Count:
    own = claim.with_share(finalist.family.risk)
    distance = finalist.event.setting.pair.distance
    proven = own.proven(*tally.hits, tally.counts, distance)
    return _Count(finalist.event, tally, proven, own.reach(sum(tally.counts), distance))


def verify_recipe(
    private: PrivateEncoder,
    samples: int = 1_000_000,
    dimension: int = DIMENSION,
    *,
    pairs: Sequence[tuple[str, str]] | None = None,
    distance: Distance | None = None,
    confidence: float = 0.999,
    progress: Progress = silent,
) -> tuple[Verdict, ...]:
    """Judge each noise step of a private encoder by itself; one verdict per step, in order.

    What follows a noise step is post-processing and what precedes it chooses the input, so a step
    that keeps its claim for every input keeps it in the recipe. A step on vectors whose width can
    be chosen is judged in at most `dimension` coordinates; one on words with a table of its own, on
    a small public table in the plane. Given `pairs` of texts, text steps are judged on these
    instead, with their own table and, where the guarantee is metric, on `distance`.
    """
    noise = [step for step in private.steps if getattr(step, "guarantee", None) is not None]
    if not noise:
        raise CapeletError("the recipe has no noise step: there is no guarantee to verify")
    least = check_count("dimension", dimension, 2)
    given_pairs = None if pairs is None else (pairs, distance)
    return tuple(
        verify(
            **_small(step, least, given_pairs),
            samples=samples,
            confidence=confidence,
            progress=progress,
        )
        for step in noise
    )


def _small(step: Any, dimension: int, texts: tuple[Any, Any] | None) -> dict[str, Any]:
    """The same step where it can be judged well: in few dimensions, or on few words."""
    own = {item.name for item in fields(step)} if is_dataclass(step) else set()
    if getattr(step, "consumes", "vectors") == "vectors":
        if "dimension" in own:
            # The claim is for any width, and fewer coordinates mean more draws in the same time.
            step = replace(step, dimension=min(step.dimension or dimension, dimension))
        return {"mechanism": step}
    if texts is None and _metric(step) and {"epsilon", "table"} <= own:
        plane = Plane(step.epsilon)
        free = dict.fromkeys(own & {"size", "fingerprint"})
        return {"mechanism": replace(step, table=plane.table, **free), "pairs": plane.pairs}
    pairs, distance = texts or (WORDS, None)
    return {"mechanism": step, "pairs": pairs, "distance": distance if _metric(step) else None}


def _claim(
    mechanism: Any,
    epsilon: float | None,
    delta: float | None,
    confidence: float,
    tradeoff: Tradeoff | None,
) -> Claim:
    guarantee = getattr(mechanism, "guarantee", None)
    if epsilon is None:
        if not isinstance(guarantee, Guarantee) or not math.isfinite(guarantee.epsilon):
            raise CapeletError("the mechanism states no guarantee; give claimed=… (the ε to test)")
        epsilon = guarantee.epsilon
    if delta is None:
        delta = guarantee.delta if isinstance(guarantee, Guarantee) else 0.0
    if tradeoff is None:
        tradeoff = "gaussian" if isinstance(mechanism, Gaussian) else "any"
    if tradeoff not in ("any", "gaussian"):
        raise CapeletError(f"tradeoff is {tradeoff!r}; it must be 'any' or 'gaussian'")
    # Between two normals every ε is exceeded at δ = 0: the trade-off says nothing there.
    least = 1e-300 if tradeoff == "gaussian" else 0.0
    return Claim(
        check_number("claimed", epsilon, 0.0, 1e300),
        check_number("delta", delta, least, 1.0),
        check_number("confidence", confidence, 0.5, 1 - 1e-12),
        tradeoff,
    )


def _pairs(
    mechanism: Any,
    dimension: int | None,
    pairs: Sequence[tuple[Any, Any]] | None,
    distance: Distance | None,
) -> list[Pair]:
    if distance is None and _metric(mechanism):
        distance = getattr(mechanism, "distance", None)
        if distance is None:
            raise CapeletError("the guarantee is per unit of distance; give distance=… for it")
    if pairs is not None:
        return own_pairs(pairs, distance)
    if getattr(mechanism, "consumes", "vectors") == "texts":
        raise CapeletError(
            "a mechanism on texts needs pairs=[(text, text)] that differ in one unit"
        )
    if distance is not None:
        raise CapeletError("distance needs pairs=[(input, input)] whose distance it is")
    own = getattr(mechanism, "dimension", None) or getattr(mechanism, "classes", None)
    if dimension is None:
        dimension = own if isinstance(own, int) else DIMENSION
    return corners(check_count("dimension", dimension))


def _metric(mechanism: Any) -> bool:
    return getattr(getattr(mechanism, "guarantee", None), "notion", "") == "metric"


def _name(mechanism: Any) -> str:
    """Its constructor call, numbers and names only, or the name of a function."""
    if is_dataclass(mechanism) and not isinstance(mechanism, type):
        arguments = {item.name: getattr(mechanism, item.name) for item in fields(mechanism)}
        plain = (f"{k}={v!r}" for k, v in arguments.items() if isinstance(v, int | float))
        return f"{type(mechanism).__name__}({', '.join(plain)})"
    return getattr(mechanism, "__name__", type(mechanism).__name__)


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
