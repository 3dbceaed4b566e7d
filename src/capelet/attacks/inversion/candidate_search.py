"""The search of sequence inversion: sentences proposed, corrected and edited, the nearest kept.

Every candidate is sent through the release. Its score is the cosine of its vector and the target,
plus, with weights, the mean log-probability that the decoder gives its pieces and the F1 that its
words may expect by the beliefs of a black-box attacker of words.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from capelet.attacks.inversion.decoder import Decoder, Pieces, crop
from capelet.attacks.inversion.rewriting import edits
from capelet.attacks.inversion.word_sets import Floats
from capelet.attacks.views import nearest
from capelet.data.text import words_of
from capelet.interfaces import Progress, silent
from capelet.numerics import cosines, unit_rows
from capelet.training.device import half_precision

if TYPE_CHECKING:
    from torch import Tensor

# From "the cosine alone" to "hardly the cosine": under heavy noise the nearest vector says little.
# Tuned on held-back auxiliary texts.
LOGS = (0.0, 0.003, 0.01, 0.02, 0.04, 0.08, 0.15, 0.4, 2.0)
BELIEFS = (0.0, 0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 3.0)
_EDITS_PER_PASS = 6  # edits of one victim that stay in a pass
_BLOCK = 100_000  # texts sent at once


@dataclass(frozen=True)
class Read:
    """A sentence read back, and the cosine of its vector with the target."""

    text: str
    cosine: float


@dataclass(frozen=True)
class Weights:
    """What log-probability and belief count beside the cosine."""

    log: float = 0.0
    belief: float = 0.0

    def score(self, parts: tuple[float, float, float]) -> float:
        cosine, log, belief = parts
        return cosine + self.log * log + self.belief * belief


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The attacker's own texts whose vectors are nearest to a target."""

    vectors: Floats
    texts: Sequence[str]
    count: int = 4

    def __call__(self, targets: Floats) -> list[list[str]]:
        own = unit_rows(self.vectors)
        places, _ = nearest(unit_rows(targets), own, min(self.count, len(own)))
        return [[self.texts[place] for place in row] for row in places.tolist()]


def _f1(guess: set[str], there: set[str]) -> float:
    return 2 * len(guess & there) / max(len(guess) + len(there), 1)


class CandidateSearch:
    """All candidates for each target so far, by text: their cosine, log-probability and belief."""

    def __init__(
        self,
        decoder: Decoder,
        pieces: Pieces,
        encode: Callable[[Sequence[str]], Floats],
        standard: Callable[[Floats], Tensor],
        targets: Floats,
        words: Sequence[Mapping[str, float]],
        sizes: Floats,
        seed: int,
    ) -> None:
        self.decoder, self.pieces, self.encode, self.targets = decoder, pieces, encode, targets
        self.standard, self.words, self.sizes = standard, words, sizes.tolist()
        self.inputs = standard(targets)
        self.candidates: list[dict[str, tuple[float, float, float]]] = [{} for _ in targets]
        self.random = random.Random(seed)
        # What fits into memory beside the caches of the decoder.
        self.block = 8192 if self.inputs.device.type == "cuda" else 256

    def propose(
        self, samples: int, others: Sequence[Sequence[str]], progress: Progress = silent
    ) -> None:
        """Sentences from the vector alone: the likeliest, and draws at rising temperature.

        `others` are further candidates for each target.
        """
        owners = torch.arange(len(self.targets)).repeat_interleave(samples)
        # Temperature 0 is the likeliest sentence; warmer draws bring other words into the pool.
        heat = torch.linspace(0, 1, samples).repeat(len(self.targets))
        self._write(owners, heat, None, progress)
        rows = [row for row, texts in enumerate(others) for _ in texts]
        self._add(rows, [text for texts in others for text in texts], None)

    def correct(self, beam: int, variants: int, weights: Weights) -> None:
        """Better sentences from the best ones so far, their vectors and the gaps left."""
        pairs = [
            (row, text)
            for row in range(len(self.targets))
            for text in self._top(row, beam, weights)
        ]
        texts = [text for _, text in pairs]
        vectors = self.standard(self.encode(texts))
        rows = torch.from_numpy(self.pieces.rows(texts)).to(self.inputs.device)
        owners = torch.tensor([row for row, _ in pairs])
        each = torch.arange(len(pairs)).repeat_interleave(variants)
        # A correction that only repeats the draft is useless, so variants differ in temperature.
        heat = torch.linspace(0, 0.9, variants).repeat(len(pairs))
        self._write(owners[each], heat, (vectors, rows, each), silent)

    def climb(self, beam: int, most: int, weights: Weights) -> None:
        """Single words of the best sentences exchanged, put in, left out; the nearest stay."""
        owners: list[int] = []
        texts: list[str] = []
        for row in range(len(self.targets)):
            pool, chances = self._pool(row, weights)
            for text in self._top(row, beam, weights):
                variants = edits(text, pool, chances, most, self.random)
                texts += variants
                owners += [row] * len(variants)
        self._add(owners, texts, _EDITS_PER_PASS, weights)

    def best(self, weights: Weights) -> list[Read]:
        tops = [self._top(row, 1, weights)[0] for row in range(len(self.targets))]
        return [Read(text, self.candidates[row][text][0]) for row, text in enumerate(tops)]

    def best_weights(self, texts: Sequence[str]) -> Weights:
        """The weights whose best sentences share most words with the true ones (mean F1)."""
        truth = [set(words_of(text)) for text in texts]
        # F1 of words, not the cosine: the nearest vector is not always the truest text.
        shares = [
            {text: _f1(set(words_of(text)), there) for text in candidates}
            for candidates, there in zip(self.candidates, truth, strict=True)
        ]
        mean_f1 = {}
        for weights in (Weights(log, belief) for log in LOGS for belief in BELIEFS):
            tops = [self._top(row, 1, weights)[0] for row in range(len(truth))]
            mean_f1[weights] = float(np.mean([shares[row][top] for row, top in enumerate(tops)]))
        return max(mean_f1, key=lambda weights: mean_f1[weights])

    def _top(self, row: int, count: int, weights: Weights) -> list[str]:
        candidates = self.candidates[row]
        if count == 1:
            return [max(candidates, key=lambda text: weights.score(candidates[text]))]
        return sorted(candidates, key=lambda text: -weights.score(candidates[text]))[:count]

    def _belief(self, row: int, text: str) -> float:
        """The F1 that the words of a text may expect."""
        words = dict.fromkeys(words_of(text))  # a sum in a fixed order, to the last digit
        chances = self.words[row]
        right = sum(chances.get(word, 0.0) for word in words)
        return 2 * right / max(len(words) + self.sizes[row], 1.0)

    def _pool(self, row: int, weights: Weights) -> tuple[list[str], list[float]]:
        """Words to try: those that `words` names and those of the better half of candidates."""
        best_texts = self._top(row, 30, weights)
        # Each word once per text, in the order of the text: a set's order changes with Python's
        # hash seed, and the draws from this pool would change with it.
        counts = Counter(word for text in best_texts for word in dict.fromkeys(words_of(text)))
        pool = {word: count / len(best_texts) for word, count in counts.items()}
        for word, chance in self.words[row].items():
            pool[word] = pool.get(word, 0.0) + chance
        # The square root lets unlikely words be tried too.
        return list(pool), [chance**0.5 + 0.02 for chance in pool.values()]

    def _write(
        self,
        owners: Tensor,
        heat: Tensor,
        drafts: tuple[Tensor, Tensor, Tensor] | None,
        progress: Progress,
    ) -> None:
        device = self.inputs.device
        texts: list[str] = []
        for start in range(0, len(owners), self.block):
            rows = self.inputs[owners[start : start + self.block].to(device)]
            with torch.no_grad(), half_precision(device):
                if drafts is None:
                    context = self.decoder.context(rows)
                else:
                    vectors, pieces, each = drafts
                    some = each[start : start + self.block].to(device)
                    context = self.decoder.context(rows, rows - vectors[some], crop(pieces[some]))
                rows_of_pieces = self.decoder.write(
                    context, heat[start : start + self.block].to(device)
                )
            texts += self.pieces.texts(rows_of_pieces.cpu().numpy())
            progress("proposing sentences", min(start + self.block, len(owners)), len(owners))
        self._add(owners.tolist(), texts, None)

    def _add(
        self,
        owners: Sequence[int],
        texts: Sequence[str],
        keep: int | None,
        weights: Weights | None = None,
    ) -> None:
        """Send new candidates through the release; of each target all, or the best `keep`."""
        fresh = {
            (row, text)
            for row, text in zip(owners, texts, strict=True)
            if text and text not in self.candidates[row]
        }
        # Sorted, since the order of a set changes with Python's hash seed.
        pairs = sorted(fresh)
        for row in {row for row in owners if not self.candidates[row]} - {row for row, _ in pairs}:
            pairs.append((row, "."))  # a decoder that writes nothing still has a guess
        near = self._near(pairs)
        if keep is not None:
            share = 0.0 if weights is None else weights.belief
            score = [
                cosine + share * self._belief(*pair)
                for pair, cosine in zip(pairs, near.tolist(), strict=True)
            ]
            place = sorted(range(len(pairs)), key=lambda item: -score[item])
            counts: Counter[int] = Counter()
            best = []
            for item in place:
                counts[pairs[item][0]] += 1
                if counts[pairs[item][0]] <= keep:
                    best.append(item)
            pairs, near = [pairs[item] for item in best], near[best]
        for (row, text), cosine, log in zip(pairs, near.tolist(), self._logs(pairs), strict=True):
            self.candidates[row][text] = (cosine, log, self._belief(row, text))

    def _near(self, pairs: Sequence[tuple[int, str]]) -> Floats:
        parts: list[Floats] = [np.zeros(0)]
        for start in range(0, len(pairs), _BLOCK):
            block = pairs[start : start + _BLOCK]
            vectors = self.encode([text for _, text in block])
            parts.append(cosines(vectors, self.targets[[row for row, _ in block]]))
        return np.concatenate(parts)

    def _logs(self, pairs: Sequence[tuple[int, str]]) -> list[float]:
        device = self.inputs.device
        logs: list[float] = []
        size = max(self.block // 8, 64)
        for start in range(0, len(pairs), size):
            block = pairs[start : start + size]
            rows = torch.from_numpy(self.pieces.rows([text for _, text in block])).to(device)
            owners = torch.tensor([row for row, _ in block], device=device)
            with torch.no_grad(), half_precision(device):
                context = self.decoder.context(self.inputs[owners])
                logs += self.decoder.logs(context, crop(rows)).float().tolist()
        return logs
