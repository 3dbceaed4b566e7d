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

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from capelet.defences.contrastive.learner import DualLearner
from capelet.defences.contrastive.pairs import Pairs, Sentences
from capelet.encoders.dual import Tokens, encode_tokens, number_words, save_dual
from capelet.encoders.dual_networks import NETWORKS, SentenceNetwork, build
from capelet.errors import CapeletError, DataError, check_known, did_you_mean
from capelet.interfaces import Progress, Vectors, silent
from capelet.question import DualNetwork, DualTraining
from capelet.training.checkpoint import Store
from capelet.training.device import choose, seeded_fork
from capelet.training.loop import Listeners, StoppingRule, run

NEGATIVES = ("any", "author")
# The first loss is about that of blind guessing, log of the batch: three times that is no training.
_EXPLOSION = 3.0

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
        return self.vectors(number_words(texts, number, self.length))

    def vectors(self, tokens: Tokens) -> Vectors:
        """The vectors of rows of word numbers, for callers who have numbered their texts once."""
        return encode_tokens(self.network, tokens)

    def save(self, folder: Path | str) -> Path:
        """Write it as a folder that is an encoder wherever Capelet takes one."""
        return save_dual(folder, self.network, self.words, self.length, self.training)


@dataclass(frozen=True)
class Contrastive(DualTraining, DualNetwork):
    """The training and its settings; `fit` gives the encoder.

    `lambda_words` and `lambda_authors` grow from 0 over the first `warm` of the training. `scale`
    multiplies the cosines in the softmax; `adversaries` networks read words and as many authors,
    each forgotten every `renew` steps in turn; `asked` is how many words they are asked for.
    """

    scale: float = 20.0
    adversaries: int = 2
    renew: int = 400
    asked: int = 5000
    warm: float = 0.2
    device: str | None = None

    @property
    def told_from(self) -> str:
        """Whose other posts a sentence is told apart from: anybody's, or its author's own."""
        return self.negatives or ("author" if self.lambda_authors else "any")

    def fit(
        self,
        sentences: Sentences,
        start: WordVectors | None = None,
        progress: Progress = silent,
        checkpoints: Path | None = None,
    ) -> Dual:
        """Train on the pairs of consecutive sentences; nothing else of the texts is used.

        `start` are known words and vectors (`WordVectorEncoder().token_table()`), from which the
        table of words begins instead of from random numbers. A training that is killed goes on
        from its last checkpoint in the folder `checkpoints`.
        """
        self._check(sentences)
        pairs = Pairs.of(sentences, self.vocabulary, self.length)
        return self.fit_pairs(pairs, start, progress, checkpoints)

    def fit_pairs(
        self,
        pairs: Pairs,
        start: WordVectors | None = None,
        progress: Progress = silent,
        checkpoints: Path | None = None,
    ) -> Dual:
        """The same for texts that have been numbered already."""
        beginning = time.monotonic()
        device = choose(self.device)
        with seeded_fork(self.seed, device):
            # Only a transformer is stacked.
            layers = self.layers if self.network == "transformer" else min(self.layers, 1)
            network = build(self.network, len(pairs.words), self.width, layers, self.dimension)
            if start is not None:
                _begin_from(network, pairs.words, *start)
            store = None
            if checkpoints is not None:
                data = (pairs.digest(), _digest(start))
                store = Store.in_folder(checkpoints, "dual", self, device, *data)
            learner = DualLearner(self, pairs, network.to(device), device)
            plan = StoppingRule(
                self.epochs, explosion=_EXPLOSION, advice="give smaller λ or a smaller rate"
            )
            course = run(learner, plan, store, Listeners(progress))
            if store is not None:
                store.forget()
        # Where it was trained is no property of the encoder.
        settings = {key: value for key, value in asdict(self).items() if key != "device"}
        account = {
            "negatives": self.told_from,
            "pairs": len(pairs),
            "authors_hidden": pairs.writers if learner.writers is not None else 0,
            "history": [{name: row[name] for name in learner.names} for row in course.history],
            "seconds": round(time.monotonic() - beginning, 1),
        }
        return Dual(network.eval(), pairs.words, self.length, {**settings, **account})

    def _check(self, sentences: Sentences) -> None:
        check_known("network", self.network, NETWORKS)
        if self.told_from not in NEGATIVES:
            raise CapeletError(
                f"negatives are {self.told_from!r}; {did_you_mean(self.told_from, NEGATIVES)}"
            )
        for name in ("lambda_words", "lambda_authors"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise CapeletError(f"{name} is {value}; give a number from 0 upwards")
        if (self.lambda_words or self.lambda_authors) and self.adversaries < 1:
            raise CapeletError("λ above 0 needs at least one adversary")
        needs = self.lambda_authors or self.told_from == "author"
        if needs and len(np.unique(sentences.authors[sentences.authors >= 0])) < 2:
            raise DataError(
                "hiding the author needs at least two authors with enough texts; "
                "give the authors' column, or leave lambda_authors at 0"
            )


def _begin_from(
    network: SentenceNetwork, words: Sequence[str], source_words: Sequence[str], vectors: Vectors
) -> None:
    """Put known word vectors, turned at random into the table's width, where words have one."""
    place = {word: row for row, word in enumerate(source_words)}
    pairs = [(row, place[word]) for row, word in enumerate(words) if word in place]
    if not pairs:
        raise DataError("none of the words has a vector to begin from; give vectors of words")
    rows = torch.tensor([row for row, _ in pairs])
    start = torch.from_numpy(np.asarray(vectors[[at for _, at in pairs]], dtype=np.float32))
    # Word vectors share a mean that says nothing of any word, and differ in scale between tables.
    start = (start - start.mean(dim=0)) / start.std(dim=0).clamp(min=1e-6)
    table = network.table.weight
    # A random projection keeps angles (Johnson, Lindenstrauss 1984), whatever the two widths are.
    projection = torch.randn(start.shape[1], table.shape[1]) / math.sqrt(start.shape[1])
    with torch.no_grad():
        table[rows] = 0.3 * table[rows] + start @ projection / math.sqrt(table.shape[1])


def _digest(start: WordVectors | None) -> str:
    """A hash of the vectors that the table begins from."""
    if start is None:
        return "none"
    hasher = hashlib.sha256("\n".join(start[0]).encode("utf-8", "surrogatepass"))
    hasher.update(np.ascontiguousarray(start[1], "<f4").tobytes())
    return hasher.hexdigest()
