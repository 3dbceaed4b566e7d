"""One finding from the guesses of all seeds: score, interval, references and ceiling."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capelet.data.labels import Attribute
from capelet.evaluation.ceilings import Ceilings, bound_of
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap, Score, wilson
from capelet.findings.metrics import Guesses, chance, majority, score


def finding_of(
    kind: str,
    target: Attribute,
    attacker: str,
    metric: str,
    guesses: Sequence[Guesses],
    bootstrap: Bootstrap,
    ceilings: Ceilings,
    is_exact: bool = False,
) -> Finding:
    """The metric as a mean over seeds, with all that a reader holds against it.

    Constant guesses of a fitted attacker are `degenerate`: nothing was learnt. Those of an exact
    one (`attacks.outcomes`) are what there is to learn.
    """
    # The null comes this way too: its interval has the score's rule, over persons and all seeds.
    interval = score(metric, guesses, bootstrap)
    classes = len(target.classes)
    truths = [item.truth for item in guesses]
    # Each seed has its own victims, so the majority is a mean over seeds too.
    majorities = [majority(metric, truth, classes) for truth in truths]
    present = [value for value in majorities if value is not None]
    bound = bound_of(metric, truths, classes)
    constant = sum(item.degenerate for item in guesses)
    if is_exact and constant:
        interval = _with_unseen(interval, guesses)
        constant = 0
    # A person has one secret and many texts; a task is asked of each text anew.
    of_person = ceilings.for_person(bound) if kind == "attribute-inference" else {}
    return Finding(
        kind,
        target.name,
        metric,
        *interval.ends,
        chance=chance(metric, classes),
        majority=float(np.mean(present)) if present else None,
        ceiling=bound(ceilings.guarantee) if bound is not None else None,
        n=round(np.mean([len(truth) for truth in truths])),
        attacker=attacker,
        degenerate=constant == len(guesses),
        parameters={
            "by_seed": list(interval.by_seed),
            "people": len(np.unique(np.concatenate([item.unit for item in guesses]))),
            **({"constant_seeds": constant} if constant else {}),
            **of_person,
        },
    )


def _with_unseen(interval: Score, guesses: Sequence[Guesses]) -> Score:
    """The interval of a table that saw one value alone, with room for values that did not come.

    Guesses that never vary have an interval of no width, however few people were seen. A value that
    no one of n people had comes to so many of a class as Wilson's interval of 0 of n says, and adds
    at most the mean of that over classes to Σ_v max_c P(v|c).
    """
    truth, unit = (
        np.concatenate([getattr(g, name) for g in guesses]) for name in ("truth", "unit")
    )
    rooms = [wilson(0.0, len(np.unique(unit[truth == code])))[1] for code in np.unique(truth)]
    high = max(interval.high, min(1.0, interval.value + float(np.mean(rooms))))
    return Score(interval.value, interval.low, high, interval.by_seed)
