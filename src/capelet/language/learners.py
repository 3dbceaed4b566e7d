"""A language model in the one training loop: the next word, with a penalty or with DP-SGD.

Nothing random is carried from step to step: the batches of an epoch, the prefixes of a step and
seeded noise are functions of (seed, epoch) or (seed, step). So a checkpoint needs no random state.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from capelet.language.methods import Adversarial, Dpsgd, Triplet
from capelet.language.model import Network, Scorer, tracer_of
from capelet.language.regularisers import (
    Discriminator,
    paired_triplet,
    states_at,
    to_uniform,
    triplet,
)
from capelet.language.vocabulary import PAD, Codes, Samples, Tokens
from capelet.mechanisms.sampling import Stream
from capelet.training.checkpoint import Parts
from capelet.training.device import choose, seeded_fork
from capelet.training.dpsgd import Clipping, Noise, SeededNoise, SystemNoise, add_noise, clipped_sum
from capelet.training.loop import Position, descend

if TYPE_CHECKING:
    from capelet.language.schedule import Training


def learner_of(
    plan: Training, network: Network, samples: Samples, validation: Tokens | None = None
) -> NextWord:
    """The learner of the plan's method."""
    kind = PrivateNextWord if isinstance(plan.method, Dpsgd) else NextWord
    return kind(plan, network, samples, validation)


class NextWord:
    """One step is one batch: the loss of the next word, and the penalty of the method."""

    names: tuple[str, ...] = ("loss",)

    def __init__(
        self, plan: Training, network: Network, samples: Samples, validation: Tokens | None = None
    ) -> None:
        self.plan, self.network, self.samples = plan, network, samples
        self.validation = validation if validation is not None and len(validation) else None
        self.device = choose(plan.device)
        network.to(self.device).train()
        # All texts at once on the device: a batch is then an index and no transfer.
        self.tokens = torch.from_numpy(samples.tokens).to(self.device)
        self.authors = torch.from_numpy(samples.authors.astype(np.int64)).to(self.device)
        self.optimiser = torch.optim.Adam(network.parameters(), lr=plan.rate)
        self.penalty = self._penalty()
        own = Parts({"network": network}, {"network": self.optimiser})
        more = Parts({}) if self.penalty is None else self.penalty.parts
        self.parts = Parts({**own.modules, **more.modules}, {**own.optimisers, **more.optimisers})

    def _penalty(self) -> Penalty | None:
        method = self.plan.method
        if isinstance(method, Adversarial):
            return Discrimination(method, self)
        return Triplets(method, self) if isinstance(method, Triplet) else None

    @property
    def steps_per_epoch(self) -> int:
        if self.plan.batching != "author":
            return math.ceil(len(self.samples) / self.plan.batch)
        counts = np.bincount(self.samples.authors)
        return int(np.ceil(counts[counts > 0] / self.plan.batch).sum())

    def batches(self, epoch: int) -> Iterable[Codes]:
        plan = self.plan
        return batches_of(
            self.samples.authors, plan.batching, plan.batch, plan.per_author, plan.seed, epoch
        )

    def step(self, batch: Codes, position: Position) -> Tensor:
        index = torch.from_numpy(batch).to(self.device)
        tokens, authors = self.tokens[index], self.authors[index]
        hidden = self.network.hidden(tokens[:, :-1])
        scores = self.network.scores(hidden)
        targets = tokens[:, 1:].flatten()
        loss = functional.cross_entropy(scores.flatten(0, 1), targets, ignore_index=PAD)
        if self.penalty is None:
            descend(self.optimiser, loss)
            return loss.detach().reshape(1)
        # Of the step alone, so that a resumed run draws the same prefixes.
        # Python salts the hash of texts only; that of integers is the same in every process.
        seed = hash((self.plan.seed, position.step + 1)) % 2**62
        random = torch.Generator().manual_seed(seed)
        states = states_at(hidden, tokens, self.penalty.position, random)
        descend(self.optimiser, loss + self.penalty(states, authors, random))
        # On states held constant: what the adversary learns must not train the model for it.
        self.penalty.learn(states.detach(), authors)
        return loss.detach().reshape(1)

    def loss(self, means: Mapping[str, float]) -> float | None:
        return means["loss"]

    def watch(self) -> tuple[str, float] | None:
        """The perplexity of the validation texts, where there are any."""
        if self.validation is None:
            return None
        perplexity = Scorer(self.network, str(self.device)).perplexity(self.validation)
        self.network.train()
        return "perplexity", perplexity


class PrivateNextWord(NextWord):
    """One step is one Poisson sample of units: clipped gradients, noise, no loss that leaves.

    A unit is a text or all (bounded) texts of an author; `units` holds their words, `(units,
    words)` or `(units, texts, words)`.
    """

    # The loss of a Poisson sample is not part of what DP-SGD covers.
    names = ()

    @cached_property
    def units(self) -> Tensor:
        if self.method.unit == "record":
            return self.tokens
        rows = author_rows(self.samples, self.method.texts_per_author, self.plan.seed)
        # Row −1 stands for no text: padding, whose loss and gradient are zero.
        nothing = torch.full_like(self.tokens[:1], PAD)
        index = torch.from_numpy(rows.astype(np.int64)).to(self.device)
        return torch.cat([self.tokens, nothing])[index]

    @property
    def count(self) -> int:
        """How many units there are said to be; the exact number must decide nothing that leaves."""
        return len(self.units) if self.method.units is None else self.method.units

    @cached_property
    def method(self) -> Dpsgd:
        assert isinstance(self.plan.method, Dpsgd)
        return self.plan.method

    @cached_property
    def noise(self) -> Noise:
        seed = self.method.seed_noise
        return SystemNoise(Stream()) if seed is None else SeededNoise(seed)

    @cached_property
    def clipping(self) -> Clipping:
        return Clipping(self.method.clip, PAD, tracer_of(self.network))

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.count / self.plan.batch)

    def batches(self, epoch: int) -> Iterator[Codes]:
        steps, share = self.steps_per_epoch, min(1.0, self.plan.batch / self.count)
        for place in range(steps):
            # Before the sample is drawn: seeded samples and noise are functions of the step.
            self.noise.begin_step(epoch * steps + place, self.device)
            # Every unit by a coin of its own: the accountant's ε is for Poisson samples only.
            yield self.noise.poisson(len(self.units), share)

    def step(self, batch: Codes, position: Position) -> Tensor:
        tokens = self.units[torch.from_numpy(batch).to(self.device)]
        clipped_sum(self.network, tokens, self.clipping)
        # σ is relative to the clip, and the divisor is the expected batch: the size of the drawn
        # one would tell who is in it.
        deviation = self.method.noise_multiplier * self.method.clip
        add_noise(self.network, deviation, min(self.plan.batch, self.count), self.noise)
        self.optimiser.step()
        return torch.empty(0)

    def loss(self, means: Mapping[str, float]) -> float | None:
        """None, but not a number once a weight is none: the weights are private already."""
        sound = all(bool(weight.isfinite().all()) for weight in self.network.parameters())
        return None if sound else math.nan


class Penalty(Protocol):
    """What a method adds to the loss, from one state for each text."""

    @property
    def parts(self) -> Parts: ...

    @property
    def position(self) -> str: ...

    def __call__(self, states: Tensor, authors: Tensor, random: torch.Generator) -> Tensor: ...

    def learn(self, states: Tensor, authors: Tensor) -> None:
        """What the adversary learns from states held constant."""
        ...


class Discrimination:
    """A discriminator with its own optimiser; the model makes its guess uniform."""

    def __init__(self, method: Adversarial, learner: NextWord) -> None:
        self.method, self.position = method, method.position
        width, people = learner.network.sizes["width"], len(learner.samples.names)
        with seeded_fork(learner.plan.seed):
            discriminator = Discriminator(width, people, method.hidden)
        self.discriminator = discriminator.to(learner.device)
        self.optimiser = torch.optim.Adam(self.discriminator.parameters(), lr=method.rate)
        self.parts = Parts({"discriminator": self.discriminator}, {"discriminator": self.optimiser})

    def __call__(self, states: Tensor, authors: Tensor, random: torch.Generator) -> Tensor:
        return self.method.strength * to_uniform(self.discriminator(states))

    def learn(self, states: Tensor, authors: Tensor) -> None:
        descend(self.optimiser, functional.cross_entropy(self.discriminator(states), authors))


class Triplets:
    """States of different authors pulled together, those of one author pushed apart."""

    parts = Parts({})

    def __init__(self, method: Triplet, learner: NextWord) -> None:
        self.method, self.position, self.learner = method, method.position, learner

    def __call__(self, states: Tensor, authors: Tensor, random: torch.Generator) -> Tensor:
        if self.method.pairs != "second":
            return self.method.strength * triplet(states, authors)
        learner = self.learner
        rows = torch.randint(len(learner.tokens), (len(states),), generator=random)
        rows = rows.to(learner.device)
        # Half of the second batch is by the same authors, or pairs of them would be rare.
        rows[::2] = self._same_author(authors[::2], random)
        hidden = learner.network.hidden(learner.tokens[rows][:, :-1])
        others = states_at(hidden, learner.tokens[rows], self.position, random)
        return self.method.strength * paired_triplet(states, others, authors, learner.authors[rows])

    def _same_author(self, authors: Tensor, random: torch.Generator) -> Tensor:
        """For each of these authors one of their rows, all alike likely."""
        everyone = self.learner.authors
        order = torch.argsort(everyone, stable=True)
        counts = torch.bincount(everyone)
        # In `order` the rows of an author follow one another, from `starts` on.
        starts = torch.cumsum(counts, 0) - counts
        share = torch.rand(len(authors), generator=random).to(self.learner.device)
        return order[starts[authors] + (share * counts[authors]).long()]

    def learn(self, states: Tensor, authors: Tensor) -> None:
        """Nothing: there is no adversary."""


def author_rows(samples: Samples, most: int, seed: int) -> Codes:
    """`(authors, texts)` row numbers: at most `most` rows of each author, −1 where there are fewer.

    Which of an author's rows train depends on that author's rows and the seed alone: those whose
    hash is least. Equal rows are told apart by their number, so that copies count as copies.
    """
    key = str(seed).encode()
    copies: Counter[tuple[int, bytes]] = Counter()
    ranks: list[list[tuple[bytes, int]]] = [[] for _ in samples.names]
    for row, (author, words) in enumerate(zip(samples.authors, samples.tokens, strict=True)):
        content = words.astype("<i8").tobytes()
        copies[int(author), content] += 1
        label = content + copies[int(author), content].to_bytes(8, "little")
        rank = hashlib.blake2b(label, digest_size=16, key=key).digest()
        ranks[author].append((rank, row))
    # The width is a setting, not the largest author's number of texts, which would be private.
    rows = np.full((len(samples.names), most), -1, dtype=np.intp)
    for author, entries in enumerate(ranks):
        first = [row for _, row in sorted(entries)[:most]]
        rows[author, : len(first)] = first
    return rows


def batches_of(
    authors: Codes, batching: str, size: int, per_author: int, seed: int, epoch: int
) -> Iterator[Codes]:
    """The row numbers of an epoch's batches; every row is in exactly one."""
    random = np.random.default_rng([seed, epoch, 0xBA])
    order = random.permutation(len(authors))
    if batching != "uniform":
        piece = size if batching == "author" else min(per_author, size)
        by_author = order[np.argsort(authors[order], kind="stable")]
        edges = np.flatnonzero(np.diff(authors[by_author])) + 1
        # Pieces of one author are shuffled among those of others, so that a batch of `grouped`
        # holds pairs of both kinds.
        pieces = [
            rows[start : start + piece]
            for rows in np.split(by_author, edges)
            for start in range(0, len(rows), piece)
        ]
        in_order = [pieces[i] for i in random.permutation(len(pieces))]
        if batching == "author":
            yield from in_order
            return
        order = np.concatenate(in_order)
    for start in range(0, len(order), size):
        yield order[start : start + size]
