"""The method `ae`: an auto-encoder of the defender's texts, which replaces the language model.

The front is a table of word vectors, whose mean over a text goes through one layer; the one term
asks for the text's words back. What was learnt leaves as an `encoders.autoencoder.AutoEncoder`.
There is no secret and no task in it: what it tells of a writer is what the words tell.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from capelet.defences.dense import Dense
from capelet.defences.fitting import Part, Schedule, train
from capelet.defences.network import Body, Network
from capelet.defences.settings import Defence, Settings
from capelet.defences.terms import Batch, Term
from capelet.encoders.autoencoder import AutoEncoder, checked_vocabulary
from capelet.encoders.own import OWN
from capelet.encoders.tables import word_rows
from capelet.errors import DataError
from capelet.interfaces import Progress, silent
from capelet.training.device import seeded_fork
from capelet.training.networks import Front, dense

# Coordinates of the hidden vector.
WIDTH = 256


class WordBag(Front):
    """The mean of the vectors of a row's words, from the number of the row; 0 where it has none."""

    def __init__(self, texts: Sequence[str], words: Sequence[str]) -> None:
        super().__init__()
        number = {word: place for place, word in enumerate(words)}
        # A padded matrix of all texts would be mostly empty: words are kept flat, with where each
        # row begins.
        flat, offsets = word_rows(texts, number)
        self.flat, self.offsets = torch.tensor(flat), torch.tensor(offsets)
        self.table = nn.Parameter(torch.randn(len(words), WIDTH))

    def words(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The words of these rows, and to which place in the batch each belongs."""
        rows = rows.cpu()
        starts, counts = self.offsets[rows], self.offsets[rows + 1] - self.offsets[rows]
        place = torch.repeat_interleave(torch.arange(len(rows)), counts)
        first = torch.repeat_interleave(starts - (counts.cumsum(0) - counts), counts)
        device = self.table.device
        return self.flat[first + torch.arange(len(place))].to(device), place.to(device)

    def forward(self, rows: Tensor) -> Tensor:
        words, place = self.words(rows)
        total = self.table.new_zeros(len(rows), WIDTH).index_add(0, place, self.table[words])
        counts = torch.bincount(place, minlength=len(rows)).clamp(min=1)
        return total / counts[:, None]


class Reconstruction(Term):
    """The words of the text, told from its features: their mean negative log-likelihood."""

    def __init__(self, width: int, words: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, words)

    def forward(self, batch: Batch, network: Network) -> Tensor:
        assert isinstance(network.front, WordBag) and batch.rows is not None
        words, place = network.front.words(batch.rows)
        counts = torch.bincount(place, minlength=len(batch.features)).clamp(min=1)
        likelihood = log_softmax(self.head(batch.features), dim=1)[place, words]
        return -(likelihood / counts[place]).sum() / max(len(batch.features), 1)


def fit_autoencoder(
    part: Part, settings: Settings, checkpoints: Path | None, progress: Progress
) -> Defence:
    """The auto-encoder in place of the encoder, then a task map without privacy."""
    if part.texts is None:
        raise DataError("the method 'ae' learns from texts, and there are only vectors")
    start = time.monotonic()
    encoder = autoencode(part, settings.schedule, checkpoints, progress)
    # From here on the defence sees what the auto-encoder gives, as whoever uses the folder will.
    own = replace(part, vectors=encoder.encode(part.texts))
    defence = Dense()(own, settings, checkpoints, progress)
    outcome = replace(defence.outcome, seconds=time.monotonic() - start)
    return replace(defence, outcome=outcome, encoder=encoder)


def autoencode(
    part: Part, schedule: Schedule, checkpoints: Path | None = None, progress: Progress = silent
) -> AutoEncoder:
    """An auto-encoder of the part's texts: words and weights come from the rows to fit on."""
    assert part.texts is not None
    words = checked_vocabulary([part.texts[row] for row in part.fit])
    with seeded_fork(schedule.seed):
        front = WordBag(part.texts, words)
        body = Body(dense([WIDTH, WIDTH]), "relu")
        network = Network(body, [Reconstruction(WIDTH, len(words))], front=front)
    with torch.no_grad():
        start = front(torch.arange(len(part.texts))).numpy()
    bare = replace(part, vectors=start, task=None, secrets=())
    # Mean and layer are both linear, so table and layer become one table of words.
    layer = train(network, bare, schedule, checkpoints, progress).map.layers[0]
    table = front.table.detach().cpu().numpy() @ layer.weight.T
    return AutoEncoder(OWN, words, np.asarray(table, np.float32), layer.bias)
