"""One finding from the guesses of all seeds: score, interval, references and ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capelet.data.labels import Attribute
from capelet.evaluation.ceilings import Ceilings, bound_of
from capelet.evaluation.plan import Plan
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap, Score, wilson
from capelet.findings.metrics import Guesses, chance, majority, people_of, score
from capelet.release import Release


@dataclass(frozen=True, eq=False)
class Scoring:
    """What all scores of one release share: who is resampled, and what bounds an attacker."""

    bootstrap: Bootstrap
    ceilings: Ceilings
    recipe_hash: str | None = None

    @classmethod
    def of(cls, plan: Plan, release: Release) -> Scoring:
        ceilings = Ceilings.of(release, plan.corpus)
        return cls(Bootstrap.over(plan.units), ceilings, release.recipe_hash)

    def finding(
        self,
        kind: str,
        target: Attribute,
        attacker: str,
        metric: str,
        guesses: Sequence[Guesses],
        is_exact: bool = False,
    ) -> Finding:
        """The metric as a mean over seeds, with all that a reader holds against it.

        Constant guesses of a fitted attacker are `degenerate`: nothing was learnt. Those of an
        exact one (`attacks.outcomes`) are what there is to learn.
        """
        # The null comes this way too: its interval has the score's rule, over persons and all
        # seeds.
        interval = score(metric, guesses, self.bootstrap)
        classes = len(target.classes)
        truths = [item.truth for item in guesses]
        # Each seed has its own victims, so the majority is a mean over seeds too.
        majorities = [majority(metric, truth, classes) for truth in truths]
        present = [value for value in majorities if value is not None]
        bound = bound_of(metric, truths, classes)
        constant = sum(item.degenerate for item in guesses)
        if is_exact and constant:
            interval, constant = with_unseen(interval, guesses), 0
        # A person has one secret and many texts; a task is asked of each text anew.
        of_person = self.ceilings.for_person(bound) if kind == "attribute-inference" else {}
        return Finding(
            kind,
            target.name,
            metric,
            *interval.ends,
            chance=chance(metric, classes),
            majority=float(np.mean(present)) if present else None,
            ceiling=bound(self.ceilings.guarantee) if bound is not None else None,
            n=round(np.mean([len(truth) for truth in truths])),
            attacker=attacker,
            degenerate=constant == len(guesses),
            parameters={
                "by_seed": list(interval.by_seed),
                "people": people_of(guesses),
                **({"constant_seeds": constant} if constant else {}),
                **of_person,
            },
            recipe_hash=self.recipe_hash,
        )


def with_unseen(interval: Score, guesses: Sequence[Guesses]) -> Score:
    """The interval of a table that saw one value alone, with room for values that did not come.

    Guesses that never vary have an interval of no width, however few people were seen. A value that
    no one of n people had comes to so many of a class as Wilson's interval of 0 of n says, and adds
    at most the mean of that over classes to Σ_v max_c P(v|c).
    """
    truth = np.concatenate([item.truth for item in guesses])
    unit = np.concatenate([item.unit for item in guesses])
    rooms = [wilson(0.0, len(np.unique(unit[truth == code])))[1] for code in np.unique(truth)]
    high = max(interval.high, min(1.0, interval.value + float(np.mean(rooms))))
    return Score(interval.value, interval.low, high, interval.by_seed)
