"""Contrastive dual encoders, trained to tell which sentence follows and neither words nor writer.

A sentence and the next one of its post get near vectors, sentences of other posts far ones (a
softmax over scaled cosines, in-batch negatives). λ_w weighs what adversaries read of the words,
λ_s what they read of the author (Song, Raghunathan 2020, section 7). Beyond the paper, adversaries
start anew on a schedule and have a closed-form one beside them, and `negatives="author"` takes the
negatives from the same author: then knowing the author does not help to find the next sentence,
and the training itself has no more use for it.

What the encoder's own adversaries reach says little. Attack the trained encoder with fresh ones
(`attacks.inversion`, `attacks.authorship`). There is no guarantee: the status is `none`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from capelet.defences.contrastive.adversaries import Authors, Words, counted
from capelet.defences.contrastive.pairs import Pairs, Sentences, batches
from capelet.encoders.dual import Tokens, encoded, numbered, save_dual
from capelet.encoders.dual_networks import NETWORKS, SentenceNetwork, build
from capelet.errors import CapeletError, DataError, did_you_mean
from capelet.interfaces import Progress, Vectors, silent

NEGATIVES = ("any", "author")
_TOGETHER = 32  # pairs of one author that share a batch
_EXPLODED = 3.0

WordVectors = tuple[Sequence[str], Vectors]

__all__ = ["NEGATIVES", "Contrastive", "Dual", "Pairs", "Sentences"]


@dataclass(frozen=True, eq=False)
class Dual:
    """A trained dual encoder in memory, and how its training went."""

    network: SentenceNetwork
    words: tuple[str, ...]
    length: int
    training: dict[str, Any]

    def encode(self, texts: list[str] | tuple[str, ...]) -> Vectors:
        number = {word: place for place, word in enumerate(self.words)}
        return self.vectors(numbered(texts, number, self.length))

    def vectors(self, tokens: Tokens) -> Vectors:
        """The vectors of rows of word numbers, for callers who have numbered their texts once."""
        return encoded(self.network, tokens)

    def save(self, folder: Path | str) -> Path:
        """Write it as a folder that is an encoder wherever Capelet takes one."""
        return save_dual(folder, self.network, self.words, self.length, self.training)


@dataclass(frozen=True)
class Contrastive:
    """The training and its settings; `fit` gives the encoder.

    `lambda_words` and `lambda_authors` grow from 0 over the first `warm` of the training. `scale`
    multiplies the cosines in the softmax; `adversaries` networks read words and as many authors,
    each forgotten every `renew` steps in turn; `asked` is how many words they are asked for.
    """

    network: str = "transformer"
    width: int = 384
    layers: int = 3
    dimension: int = 384
    vocabulary: int = 20_000
    length: int = 64
    epochs: int = 5
    batch: int = 1024
    rate: float = 5e-4
    scale: float = 20.0
    lambda_words: float = 0.0
    lambda_authors: float = 0.0
    negatives: str = "any"
    adversaries: int = 2
    renew: int = 400
    asked: int = 5000
    warm: float = 0.2
    seed: int = 0
    device: str | None = None

    def fit(
        self, sentences: Sentences, start: WordVectors | None = None, progress: Progress = silent
    ) -> Dual:
        """Train on the pairs of consecutive sentences; nothing else of the texts is used.

        `start` are known words and vectors (`WordVectorEncoder().token_table()`), from which the
        table of words begins instead of from random numbers.
        """
        self._check(sentences)
        pairs = Pairs.of(sentences, self.vocabulary, self.length)
        return self.fit_pairs(pairs, start, progress)

    def fit_pairs(
        self, pairs: Pairs, start: WordVectors | None = None, progress: Progress = silent
    ) -> Dual:
        """The same for texts that have been numbered already."""
        device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self.seed)
            layers = self.layers if self.network == "transformer" else min(self.layers, 1)
            network = build(self.network, len(pairs.words), self.width, layers, self.dimension)
            if start is not None:
                _begin_from(network, pairs.words, *start)
            run = _Run(self, pairs, network.to(device), device)
            account = run.train(progress)
        settings = {key: value for key, value in asdict(self).items() if key != "device"}
        return Dual(network.eval(), pairs.words, self.length, {**settings, **account})

    def _check(self, sentences: Sentences) -> None:
        if self.network not in NETWORKS:
            raise CapeletError(
                f"there is no network {self.network!r}; {did_you_mean(self.network, NETWORKS)}"
            )
        if self.negatives not in NEGATIVES:
            raise CapeletError(
                f"negatives are {self.negatives!r}; {did_you_mean(self.negatives, NEGATIVES)}"
            )
        for name in ("lambda_words", "lambda_authors"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise CapeletError(f"{name} is {value}; give a number from 0 upwards")
        for name in ("width", "layers", "dimension", "vocabulary", "length", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise CapeletError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if (self.lambda_words or self.lambda_authors) and self.adversaries < 1:
            raise CapeletError("λ above 0 needs at least one adversary")
        needs = self.lambda_authors or self.negatives == "author"
        if needs and len(np.unique(sentences.authors[sentences.authors >= 0])) < 2:
            raise DataError(
                "hiding the author needs at least two authors with enough texts; "
                "give the authors' column, or leave lambda_authors at 0"
            )


class _Run:
    """The loop: one step of the encoder, one of each adversary."""

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
        self.sums: dict[str, Tensor] = {}

    def train(self, progress: Progress) -> dict[str, Any]:
        settings, began = self.settings, time.monotonic()
        random = np.random.default_rng([settings.seed, 0x5C])
        size = min(settings.batch, max(32, len(self.pairs) // 8))
        together = _TOGETHER if settings.negatives == "author" else 1
        optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=settings.rate, weight_decay=0.01, betas=(0.9, 0.98)
        )
        steps = settings.epochs * max(1, len(self.pairs) // size)
        pace = torch.optim.lr_scheduler.LambdaLR(optimiser, _pace(steps))
        history: list[dict[str, float]] = []
        step = 0
        for _ in range(settings.epochs):
            self.sums = {}
            chosen = batches(self.pairs, size, together, random)
            for rows in chosen:
                self._step(rows, step, min(1.0, step / max(settings.warm * steps, 1)), optimiser)
                pace.step()
                step += 1
                progress("training", step, steps)
            history.append({name: float(sum_ / len(chosen)) for name, sum_ in self.sums.items()})
            _refuse_explosion(history)
        return {
            "pairs": len(self.pairs),
            "authors_hidden": self.pairs.writers if self.writers is not None else 0,
            "history": history,
            "seconds": round(time.monotonic() - began, 1),
        }

    def _step(
        self, rows: np.ndarray[Any, Any], step: int, warm: float, optimiser: torch.optim.Optimizer
    ) -> None:
        settings = self.settings
        first = self.pairs.first[rows]
        both = np.concatenate([first, first + 1])
        index = torch.from_numpy(both).to(self.device)
        tokens = self.tokens[index, : int(self.lengths[both].max())].long()
        # A closed-form reader learns on one half of these and is scored on the other.
        order = _halves(len(first), self.device)
        with torch.autocast("cuda", torch.bfloat16, enabled=self.device.type == "cuda"):
            vectors = self.network(tokens)
        loss = self._contrast(vectors, index)
        self._add("contrast", loss)
        if self.words is not None:
            held = self.words.target(tokens)[order]
            known = self.words.read(vectors[order], held)
            loss = loss + settings.lambda_words * warm * known
            self._add("words_read", known)
        if self.writers is not None:
            owners = self.authors[index][order]
            known = self.writers.read(vectors[order], owners)
            loss = loss + settings.lambda_authors * warm * known
            self._add("authors_read", known)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        # A flat batch has no finite slope: the step is left out, and counted.
        slope = torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self._add("left_out", (~torch.isfinite(slope)).float())
        for part in self.network.parameters():
            if part.grad is not None:
                part.grad.nan_to_num_(0.0, 0.0, 0.0)
        optimiser.step()
        if self.words is not None:
            self.words.learn(vectors[order], held, step)
        if self.writers is not None:
            self.writers.learn(vectors[order], owners, step)

    def _contrast(self, vectors: Tensor, index: Tensor) -> Tensor:
        """Both ways: which is the next sentence, and which the one before."""
        half = len(vectors) // 2
        before, after = vectors[:half], vectors[half:]
        posts, authors = self.posts[index[:half]], self.authors[index[:half]]
        scores = self.settings.scale * before @ after.T
        own = torch.eye(half, dtype=torch.bool, device=scores.device)
        # Other sentences of the same post are neither right nor wrong.
        wrong = posts[:, None] == posts[None, :]
        if self.settings.negatives == "author":
            wrong = wrong | (authors[:, None] != authors[None, :])
        scores = scores.masked_fill(wrong & ~own, -torch.inf)
        right = torch.arange(half, device=scores.device)
        return 0.5 * (
            functional.cross_entropy(scores, right) + functional.cross_entropy(scores.T, right)
        )

    def _words(self) -> Words:
        numbers, shares = counted(self.pairs.tokens, self.pairs.words, self.settings.asked)
        made = Words(
            self.settings.dimension,
            numbers,
            shares,
            self.settings.adversaries,
            self.settings.renew,
            len(self.pairs.words),
        )
        return made.to(self.device)

    def _writers(self) -> Authors:
        known = self.pairs.authors[self.pairs.authors >= 0]
        counts = np.bincount(known, minlength=self.pairs.writers)
        made = Authors(
            self.settings.dimension, counts, self.settings.adversaries, self.settings.renew
        )
        return made.to(self.device)

    def _add(self, name: str, value: Tensor) -> None:
        held = value.detach()  # summed where it lies: to ask for a number waits for the GPU
        self.sums[name] = self.sums[name] + held if name in self.sums else held


def _begin_from(
    network: SentenceNetwork, words: Sequence[str], known: Sequence[str], vectors: Vectors
) -> None:
    """Put known word vectors, turned at random into the table's width, where words have one."""
    place = {word: row for row, word in enumerate(known)}
    found = [(row, place[word]) for row, word in enumerate(words) if word in place]
    if not found:
        raise DataError("none of the words has a vector to begin from; give vectors of words")
    rows = torch.tensor([row for row, _ in found])
    held = torch.from_numpy(np.asarray(vectors[[at for _, at in found]], dtype=np.float32))
    held = (held - held.mean(dim=0)) / held.std(dim=0).clamp(min=1e-6)
    table = network.table.weight
    turn = torch.randn(held.shape[1], table.shape[1]) / math.sqrt(held.shape[1])
    with torch.no_grad():
        table[rows] = 0.3 * table[rows] + held @ turn / math.sqrt(table.shape[1])


def _halves(pairs: int, device: torch.device) -> Tensor:
    """Both sentences of every other pair, then both of the rest: each half has all authors."""
    rows = torch.arange(pairs, device=device)
    even, odd = rows[::2], rows[1::2]
    return torch.cat([even, even + pairs, odd, odd + pairs])


def _pace(steps: int) -> Callable[[int], float]:
    """Warm up over a twentieth, then fall along a cosine."""
    warm = max(steps // 20, 1)

    def factor(done: int) -> float:
        if done < warm:
            return (done + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - warm) / max(steps - warm, 1))))

    return factor


def _refuse_explosion(history: list[dict[str, float]]) -> None:
    first, last = history[0]["contrast"], history[-1]["contrast"]
    lost = history[-1]["left_out"]
    if not math.isfinite(last) or last > _EXPLODED * max(first, 1.0) or lost > 0.5:
        raise CapeletError(
            f"the training diverged (loss {first:.3g} at first, {last:.3g} now) and nothing was "
            "saved; give smaller λ or a smaller rate"
        )
