"""Who of many wrote a text: writers drawn by each seed, attackers, their null and the baseline.

A score is the mean over writers of the share of their texts that is attributed rightly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capelet.attacks.authorship import (
    Codes,
    Floats,
    LinearProbe,
    Perceptron,
    Probe,
    Shots,
    TextCnn,
)
from capelet.data.splits import Seeds, seed_list
from capelet.errors import DataError
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap, mean_over_seeds, weighted_means

TARGET = "author"


# What is tried where two are: an encoder trained against readers hides from those it met.
PROBES: tuple[Probe, ...] = (LinearProbe(), Perceptron())


@dataclass(frozen=True)
class Authorship:
    """How many writers there are, of how many known texts each, and who attributes the others.

    The baseline reads the texts themselves, where they are given.
    """

    shots: int = 10
    writers: int = 100
    tests: int = 40
    seeds: Seeds = 5
    probe: Probe = PROBES[0]
    baseline: TextCnn = field(default_factory=TextCnn)

    def measure(
        self,
        vectors: Floats,
        authors: Sequence[Any],
        texts: Sequence[Sequence[str]] | None = None,
        recipe_hash: str | None = None,
    ) -> list[Finding]:
        """Top-1 and top-5 accuracy, means over writers; `texts` (as words) serve the baseline."""
        if len(vectors) != len(authors):
            raise DataError(f"{len(vectors)} vectors do not match {len(authors)} authors")
        # A person drawn by two seeds is one person: all seeds share one set of weights.
        people = np.unique(np.asarray(authors, dtype=str), return_inverse=True)[1]
        bootstrap = Bootstrap.over(people)
        ranks: dict[tuple[str, str], list[tuple[Codes, Floats]]] = {}
        writers, victims = 0, np.zeros(0, dtype=np.intp)
        for seed in seed_list(self.seeds):
            shots = Shots.of(authors, self.shots, self.writers, self.tests, seed)
            writers = shots.writers
            victims = np.union1d(victims, people[shots.test])
            truth = shots.codes[shots.test]
            # Each writer counts alike, however many texts are to be attributed: else naming the
            # busiest one for everything would score more than any guarantee permits.
            shares = 1.0 / np.bincount(truth, minlength=writers)[truth]
            weights = bootstrap.weights[:, people[shots.test]] * shares
            for who, scores in self._scores(vectors, texts, shots, seed):
                ranks.setdefault(who, []).append((_ranks(scores, truth), weights))
        return [
            self._finding(kind, attacker, metric, by_seed, (writers, len(victims)), recipe_hash)
            for (kind, attacker), by_seed in ranks.items()
            for metric in ("top1", "top5")
        ]

    def _scores(
        self, vectors: Floats, texts: Sequence[Sequence[str]] | None, shots: Shots, seed: int
    ) -> Iterator[tuple[tuple[str, str], Floats]]:
        """Scores of the probe, of its null and of the baseline, by kind and name."""
        probe, baseline = self.probe, self.baseline
        yield ("authorship", probe.name), probe.scores(vectors, shots, shots.codes)
        random_codes = shots.codes.copy()
        random = np.random.default_rng([seed, 0x3D])
        # Only the known labels are permuted: the same probe on the same vectors, with nothing to
        # learn.
        random_codes[shots.training] = random.permutation(random_codes[shots.training])
        yield ("authorship-null", probe.name), probe.scores(vectors, shots, random_codes)
        if texts is not None:
            scores = baseline.scores(texts, shots, shots.codes)
            yield ("authorship-reference", baseline.name), scores

    def _finding(
        self,
        kind: str,
        attacker: str,
        metric: str,
        ranks: Sequence[tuple[Codes, Floats]],
        sizes: tuple[int, int],
        recipe_hash: str | None,
    ) -> Finding:
        # Those to choose among in one seed, and those who were attacked in some seed.
        writers, people = sizes
        most = {"top1": 1, "top5": 5}[metric]
        # A writer is found or missed as a whole, more or less: so writers are resampled, not texts.
        score = mean_over_seeds(
            [weighted_means(weights, (rank < most).astype(float)) for rank, weights in ranks],
            people,
            is_share=True,
        )
        return Finding(
            kind,
            TARGET,
            metric,
            *score.ends,
            chance=min(1.0, most / writers),
            majority=min(1.0, most / writers),
            n=round(np.mean([len(rank) for rank, _ in ranks])),
            attacker=attacker,
            parameters={
                "shots": self.shots,
                "writers": writers,
                "people": people,
                "by_seed": list(score.by_seed),
            },
            recipe_hash=recipe_hash,
        )


def _ranks(scores: Floats, truth: Codes) -> Codes:
    """How many writers score above the true one; a tie counts half of its luck against it."""
    # Equal scores are no success: a probe that says nothing must not look as if it found everyone.
    right = scores[np.arange(len(truth)), truth][:, None]
    above = (scores > right).sum(axis=1)
    ties = (scores == right).sum(axis=1) - 1
    return np.asarray(above + np.ceil(ties / 2), dtype=np.intp)
