"""Few-shot authorship: who of many wrote this, from a handful of labelled vectors of each writer.

Threat model: the attacker holds 10 to 50 texts of each candidate writer, sends them through the
same release, and fits a linear probe; the victims are other texts of the same writers. The baseline
sees what the vectors were made from: a convolutional network on the raw text (TextCNN), trained on
the same few texts. Where the vectors win, the encoder brought knowledge that helps to tell writers
apart (Song, Raghunathan 2020, section 6.3). The null deals the training labels out at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from capelet.errors import DataError
from capelet.findings import Finding
from capelet.findings.intervals import Bootstrap, mean_over_seeds, weighted_means

Floats = npt.NDArray[np.floating[Any]]
Rows = npt.NDArray[np.intp]
Codes = npt.NDArray[np.intp]

TARGET = "author"
_STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)  # vectors are scaled to length about one


@dataclass(frozen=True, eq=False)
class Shots:
    """Which rows the attacker knows (`shots` of each writer) and which it must attribute."""

    known: Rows
    scored: Rows
    codes: Codes
    writers: int

    @classmethod
    def of(
        cls,
        authors: Sequence[Any],
        shots: int = 10,
        writers: int = 100,
        tests: int = 40,
        seed: int = 0,
    ) -> Shots:
        """Draw writers, and for each of them texts to know and others to be scored.

        Writers with too few texts are left out; fewer than two are refused.
        """
        names, codes = np.unique(np.asarray(authors, dtype=str), return_inverse=True)
        counts = np.bincount(codes)
        able = np.flatnonzero(counts >= shots + 1)
        if len(able) < 2:
            raise DataError(
                f"{len(able)} of {len(names)} writers have {shots + 1} texts or more: authorship "
                "needs at least two such writers; ask for fewer texts of each"
            )
        random = np.random.default_rng([seed, 0x3A])
        chosen = np.sort(random.permutation(able)[:writers])
        known, scored = [], []
        for writer in chosen:
            rows = random.permutation(np.flatnonzero(codes == writer))
            known.append(rows[:shots])
            scored.append(rows[shots : shots + tests])
        place = np.full(len(names), -1)
        place[chosen] = np.arange(len(chosen))
        return cls(np.concatenate(known), np.concatenate(scored), place[codes], len(chosen))


@dataclass(frozen=True)
class LinearProbe:
    """Multinomial logistic regression; its strength is chosen by folds of the known texts."""

    strengths: Sequence[float] = _STRENGTHS
    seed: int = 0
    name: str = "linear"

    def scores(self, vectors: Floats, shots: Shots, codes: Codes) -> Floats:
        """A score per writer for each text to be attributed, from the codes of the known ones."""
        from sklearn.linear_model import LogisticRegression

        known, scored = _standard(vectors[shots.known], vectors[shots.scored])
        truth = codes[shots.known]
        fold = np.random.default_rng([self.seed, 0x3B]).permutation(len(truth)) % 3

        def fitted(strength: float, rows: npt.NDArray[np.bool_]) -> Any:
            model = LogisticRegression(C=strength, max_iter=1000, tol=1e-6)
            return model.fit(known[rows], truth[rows])

        def reached(strength: float) -> float:
            model = fitted(strength, fold > 0)
            return float(model.score(known[fold == 0], truth[fold == 0]))

        best = max(self.strengths, key=reached)
        model = fitted(best, np.ones(len(truth), dtype=bool))
        answer = np.full((len(scored), shots.writers), -np.inf)
        answer[:, model.classes_] = model.predict_log_proba(scored)
        return answer


@dataclass(frozen=True)
class TextCnn:
    """The baseline on raw text: word vectors learnt from the known texts, filters, max-pooling.

    Kim (2014), widths 3, 4 and 5. It is stopped on a held-back fifth of the known texts.
    """

    width: int = 100
    filters: int = 100
    longest: int = 200
    epochs: int = 60
    patience: int = 8
    rate: float = 2e-3
    seed: int = 0
    name: str = "text-cnn"

    def scores(self, texts: Sequence[Sequence[str]], shots: Shots, codes: Codes) -> Floats:
        import torch
        from torch.nn import functional

        vocabulary = _vocabulary([texts[row] for row in shots.known])
        known = torch.from_numpy(_numbered([texts[row] for row in shots.known], vocabulary, self))
        asked = torch.from_numpy(_numbered([texts[row] for row in shots.scored], vocabulary, self))
        truth = torch.from_numpy(codes[shots.known].astype(np.int64))
        random = np.random.default_rng([self.seed, 0x3C])
        order = random.permutation(len(truth))
        tune, fit = order[: len(order) // 5], order[len(order) // 5 :]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            network = _network(len(vocabulary) + 2, self, shots.writers)
            optimiser = torch.optim.Adam(network.parameters(), lr=self.rate)
            best, kept, waited = np.inf, None, 0
            for _ in range(self.epochs):
                network.train()
                for rows in np.array_split(random.permutation(fit), -(-len(fit) // 64)):
                    loss = functional.cross_entropy(network(known[rows]), truth[rows])
                    optimiser.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
                network.eval()
                with torch.no_grad():
                    reached = float(functional.cross_entropy(network(known[tune]), truth[tune]))
                if reached < best:
                    best, waited = reached, 0
                    kept = {name: part.clone() for name, part in network.state_dict().items()}
                elif (waited := waited + 1) >= self.patience:
                    break
            if kept is not None:
                network.load_state_dict(kept)
            with torch.no_grad():
                made = [network(asked[at : at + 256]) for at in range(0, len(asked), 256)]
        return np.asarray(torch.cat(made).numpy())


def _network(words: int, shape: TextCnn, writers: int) -> Any:
    from torch import nn

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(words, shape.width, padding_idx=0)
            self.filters = nn.ModuleList(
                nn.Conv1d(shape.width, shape.filters, size, padding=size - 1) for size in (3, 4, 5)
            )
            self.drop = nn.Dropout(0.5)
            self.out = nn.Linear(3 * shape.filters, writers)

        def forward(self, ids: Any) -> Any:
            import torch

            inside = self.table(ids).transpose(1, 2)
            pooled = [torch.relu(layer(inside)).amax(dim=2) for layer in self.filters]
            return self.out(self.drop(torch.cat(pooled, dim=1)))

    return Network()


def _vocabulary(texts: Sequence[Sequence[str]]) -> dict[str, int]:
    words = sorted({word for text in texts for word in text})
    return {word: number for number, word in enumerate(words, 2)}


def _numbered(
    texts: Sequence[Sequence[str]], vocabulary: dict[str, int], shape: TextCnn
) -> npt.NDArray[np.int64]:
    """Word numbers of each text, cut and padded; 0 is nothing, 1 a word never seen."""
    longest = max(5, min(shape.longest, max((len(text) for text in texts), default=5)))
    table = np.zeros((len(texts), longest), dtype=np.int64)
    for row, text in enumerate(texts):
        ids = [vocabulary.get(word, 1) for word in text[:longest]]
        table[row, : len(ids)] = ids
    return table


@dataclass(frozen=True)
class Authorship:
    """The whole measurement: writers and texts drawn by each seed, probe, null and baseline."""

    shots: int = 10
    writers: int = 100
    tests: int = 40
    seeds: int = 5
    probe: LinearProbe = field(default_factory=LinearProbe)
    baseline: TextCnn | None = None

    def measure(
        self,
        vectors: Floats,
        authors: Sequence[Any],
        texts: Sequence[Sequence[str]] | None = None,
        recipe_hash: str | None = None,
    ) -> list[Finding]:
        """Top-1 and top-5 accuracy as findings; `texts` (as words) only serve the baseline."""
        if len(vectors) != len(authors):
            raise DataError(f"{len(vectors)} vectors do not match {len(authors)} authors")
        if self.baseline is not None and texts is None:
            raise DataError("the TextCNN baseline needs the texts; give them or leave it out")
        # A person drawn by two seeds is one person: all seeds share one set of weights.
        people = np.unique(np.asarray(authors, dtype=str), return_inverse=True)[1]
        bootstrap = Bootstrap.over(people)
        ranks: dict[tuple[str, str], list[tuple[Codes, Floats]]] = {}
        writers = 0
        for seed in range(self.seeds):
            shots = Shots.of(authors, self.shots, self.writers, self.tests, seed)
            writers = shots.writers
            truth = shots.codes[shots.scored]
            weights = bootstrap.weights[:, people[shots.scored]].astype(np.float64)

            def add(
                kind: str,
                attacker: str,
                scores: Floats,
                truth: Codes = truth,
                weights: Floats = weights,
            ) -> None:
                ranks.setdefault((kind, attacker), []).append((_ranks(scores, truth), weights))

            add("authorship", self.probe.name, self.probe.scores(vectors, shots, shots.codes))
            shuffled = shots.codes.copy()
            random = np.random.default_rng([seed, 0x3D])
            shuffled[shots.known] = random.permutation(shuffled[shots.known])
            add("authorship-null", self.probe.name, self.probe.scores(vectors, shots, shuffled))
            if self.baseline is not None and texts is not None:
                scores = self.baseline.scores(texts, shots, shots.codes)
                add("authorship-reference", self.baseline.name, scores)
        return [
            self._finding(kind, attacker, metric, by_seed, writers, recipe_hash)
            for (kind, attacker), by_seed in ranks.items()
            for metric in ("top1", "top5")
        ]

    def _finding(
        self,
        kind: str,
        attacker: str,
        metric: str,
        ranks: Sequence[tuple[Codes, Floats]],
        writers: int,
        recipe_hash: str | None,
    ) -> Finding:
        most = {"top1": 1, "top5": 5}[metric]
        # A writer is found or missed as a whole, more or less: so writers are resampled, not texts.
        score = mean_over_seeds(
            [weighted_means(weights, (rank < most).astype(float)) for rank, weights in ranks]
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
                "by_seed": list(score.by_seed),
            },
            recipe_hash=recipe_hash,
        )


def _ranks(scores: Floats, truth: Codes) -> Codes:
    """How many writers score above the true one; a tie counts half of its luck against it."""
    right = scores[np.arange(len(truth)), truth][:, None]
    above = (scores > right).sum(axis=1)
    ties = (scores == right).sum(axis=1) - 1
    return np.asarray(above + np.ceil(ties / 2), dtype=np.intp)


def _standard(known: Floats, scored: Floats) -> tuple[Floats, Floats]:
    """Standardised by the known texts alone, then scaled to length about one; dead axes are 0."""
    wide = known.astype(np.float64)
    mean, deviation = wide.mean(axis=0), wide.std(axis=0)
    alive = deviation > 1e-6 * np.maximum(np.abs(wide).max(axis=0), 1e-30)
    scale = np.where(alive, 1 / np.where(alive, deviation, 1), 0) / np.sqrt(max(alive.sum(), 1))
    return (wide - mean) * scale, (scored - mean) * scale
