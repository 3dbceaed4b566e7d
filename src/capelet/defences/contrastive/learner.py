"""A dual encoder in the one training loop: one step of the encoder, one of each adversary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from capelet.defences.contrastive.adversaries import Adversary, Authors, Words, count_words
from capelet.defences.contrastive.pairs import Pairs, batches
from capelet.encoders.dual_networks import SentenceNetwork
from capelet.training.checkpoint import Parts
from capelet.training.device import generators, half_precision
from capelet.training.loop import Position, warm_cosine

if TYPE_CHECKING:
    from capelet.defences.contrastive import Contrastive

_TOGETHER = 32  # pairs of one author that share a batch


class DualLearner:
    """The encoder, what it is trained against, and what a checkpoint must hold of both."""

    def __init__(
        self, settings: Contrastive, pairs: Pairs, network: SentenceNetwork, device: torch.device
    ) -> None:
        self.settings, self.pairs, self.network, self.device = settings, pairs, network, device
        self.tokens = torch.from_numpy(pairs.tokens.astype(np.int32)).to(device)
        self.lengths = (pairs.tokens != 0).sum(axis=1)
        self.posts = torch.from_numpy(pairs.posts).to(device)
        self.authors = torch.from_numpy(pairs.authors).to(device)
        self.words = self._words() if settings.lambda_words else None
        self.writers = self._writers() if settings.lambda_authors else None
        # Few pairs in large batches would be too few steps.
        self.size = min(settings.batch, max(32, len(pairs) // 8))
        self.random = np.random.default_rng([settings.seed, 0x5C])
        self.optimiser = torch.optim.AdamW(
            network.parameters(), lr=settings.rate, weight_decay=0.01, betas=(0.9, 0.98)
        )
        steps = settings.epochs * self.steps_per_epoch
        self.pace = warm_cosine(steps, max(steps // 20, 1))
        self.warm_steps = max(settings.warm * steps, 1)
        self.names = self._names()
        self.parts = self._parts()

    @property
    def steps_per_epoch(self) -> int:
        return max(1, len(self.pairs) // self.size)

    def batches(self, epoch: int) -> Iterable[np.ndarray[Any, Any]]:
        together = _TOGETHER if self.settings.told_from == "author" else 1
        return batches(self.pairs, self.size, together, self.random)

    def step(self, batch: np.ndarray[Any, Any], position: Position) -> Tensor:
        first = self.pairs.first[batch]
        # One pass for both sentences of all pairs; the halves are told apart again in `_contrast`.
        both = np.concatenate([first, first + 1])
        index = torch.from_numpy(both).to(self.device)
        tokens = self.tokens[index, : int(self.lengths[both].max())].long()
        # A closed-form reader learns on one half of these and is scored on the other.
        order = _halves(len(first), self.device)
        with half_precision(self.device):
            vectors = self.network(tokens)
        values = [self._contrast(vectors, index)]
        loss, warm = values[0], min(1.0, position.step / self.warm_steps)
        targets = self._targets(tokens, index, order)
        for adversary, strength, target in targets:
            knowledge = adversary.read(vectors[order], target)
            loss = loss + strength * warm * knowledge
            values.append(knowledge)
        values.append(self._update(loss, position))
        for adversary, _, target in targets:
            adversary.learn(vectors[order], target, position.step)
        return torch.stack([value.detach().float() for value in values])

    def loss(self, means: Mapping[str, float]) -> float:
        """The contrast; not a number where most steps had no finite slope."""
        return math.nan if means["left_out"] > 0.5 else means["contrast"]

    def watch(self) -> None:
        """Nothing: what its own adversaries reach says little, and the last state is kept."""

    def _targets(
        self, tokens: Tensor, index: Tensor, order: Tensor
    ) -> list[tuple[Adversary, float, Tensor]]:
        """Each adversary, its λ, and what it is asked for."""
        targets: list[tuple[Adversary, float, Tensor]] = []
        if self.words is not None:
            words = self.words.target(tokens)[order]
            targets.append((self.words, self.settings.lambda_words, words))
        if self.writers is not None:
            authors = self.authors[index][order]
            targets.append((self.writers, self.settings.lambda_authors, authors))
        return targets

    def _update(self, loss: Tensor, position: Position) -> Tensor:
        """One step of the encoder; 1 where it was left out."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.rate * self.pace(position.step)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        # A flat batch has no finite slope: the step is left out, and counted.
        slope = torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        for weight in self.network.parameters():
            if weight.grad is not None:
                weight.grad.nan_to_num_(0.0, 0.0, 0.0)
        self.optimiser.step()
        return (~torch.isfinite(slope)).float()

    def _contrast(self, vectors: Tensor, index: Tensor) -> Tensor:
        """Both ways: which is the next sentence, and which the one before."""
        half = len(vectors) // 2
        before, after = vectors[:half], vectors[half:]
        posts, authors = self.posts[index[:half]], self.authors[index[:half]]
        scores = self.settings.scale * before @ after.T
        own = torch.eye(half, dtype=torch.bool, device=scores.device)
        # Other sentences of the same post are neither right nor wrong.
        wrong = posts[:, None] == posts[None, :]
        if self.settings.told_from == "author":
            wrong = wrong | (authors[:, None] != authors[None, :])
        scores = scores.masked_fill(wrong & ~own, -torch.inf)
        right = torch.arange(half, device=scores.device)
        return 0.5 * (
            functional.cross_entropy(scores, right) + functional.cross_entropy(scores.T, right)
        )

    def _names(self) -> tuple[str, ...]:
        words = ["words_read"] if self.words is not None else []
        authors = ["authors_read"] if self.writers is not None else []
        return ("contrast", *words, *authors, "left_out")

    def _parts(self) -> Parts:
        """Readers are reset with torch's own random numbers, so these belong to a checkpoint."""
        modules: dict[str, Any] = {"network": self.network}
        optimisers: dict[str, Any] = {"network": self.optimiser}
        for name, adversary in (("words", self.words), ("authors", self.writers)):
            if adversary is not None:
                modules[name] = adversary
                for place, optimiser in enumerate(adversary.optimisers):
                    optimisers[f"{name}-{place}"] = optimiser
        return Parts(modules, optimisers, {"batches": self.random, **generators(self.device)})

    def _words(self) -> Words:
        settings = self.settings
        questions = count_words(self.pairs.tokens, self.pairs.words, settings.asked)
        adversary = Words(
            settings.dimension,
            *questions,
            settings.adversaries,
            settings.renew,
            len(self.pairs.words),
        )
        return adversary.to(self.device)

    def _writers(self) -> Authors:
        settings = self.settings
        present = self.pairs.authors[self.pairs.authors >= 0]
        counts = np.bincount(present, minlength=self.pairs.writers)
        adversary = Authors(settings.dimension, counts, settings.adversaries, settings.renew)
        return adversary.to(self.device)


def _halves(pairs: int, device: torch.device) -> Tensor:
    """Both sentences of every other pair, then both of the rest: each half has all authors."""
    rows = torch.arange(pairs, device=device)
    even, odd = rows[::2], rows[1::2]
    return torch.cat([even, even + pairs, odd, odd + pairs])
