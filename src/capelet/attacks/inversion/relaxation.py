"""White-box inversion by gradients: search for the text whose vector is the one that was seen.

Threat model: the attacker holds weights and gradients. A text is relaxed to one softmax over the
token table per position, and those are moved by Adam until the encoder's vector of the relaxed text
is near the target (Song, Raghunathan 2020, eq. 5). Deep layers make that hard; so eq. 6 first maps
the released vector, by a ridge map learnt on auxiliary texts, to the sentence vector of a lower
layer, and searches there. The number of positions is estimated from the vector too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capelet.attacks.inversion.layers import OpenDual, OpenModel
from capelet.attacks.inversion.sparse import Ridge
from capelet.attacks.inversion.word_sets import Floats, Ids, Vocabulary, WordSets
from capelet.errors import DataError
from capelet.interfaces import Progress, silent


@dataclass(frozen=True)
class Relaxation:
    """Eq. 5 (`layer=None`: against the released vector itself) or eq. 6 (a lower `layer`).

    `tokens` are the ids that may be chosen; by default those met in the auxiliary texts.
    """

    layer: int | None = None
    # The paper's temperature. Its rate of 1e-3 needs ten times as many steps for the same way.
    temperature: float = 0.05
    learning_rate: float = 1e-2
    steps: int = 500
    batch: int = 32
    seed: int = 0

    def fit(
        self,
        vectors: Floats,
        texts: Sequence[str],
        model: OpenModel | OpenDual,
        vocabulary: Vocabulary,
        progress: Progress = silent,
    ) -> Relaxer:
        """Learn on auxiliary texts the length and, for eq. 6, the map to the lower layer."""
        if len(vectors) != len(texts):
            raise DataError(f"{len(vectors)} vectors do not match {len(texts)} auxiliary texts")
        if self.layer is not None and not 0 <= self.layer <= model.layers:
            raise DataError(f"there is no layer {self.layer}; the model has 0 to {model.layers}")
        tokens = [ids for ids, _ in model.tokens(texts)]
        lengths = np.array([len(ids) for ids in tokens], dtype=np.float64)
        order = np.random.default_rng([self.seed, 0x1C]).permutation(len(texts))
        tenth = max(len(texts) // 10, 5)
        tune, fit = order[:tenth], order[tenth:]
        tuning_vectors = vectors[tune]
        length = Ridge.fit(vectors[fit], lengths[fit, None], (tuning_vectors, lengths[tune, None]))
        layer_map = None
        if self.layer is not None:
            means = model.means(texts, [self.layer], progress)[self.layer]
            layer_map = Ridge.fit(vectors[fit], means[fit], (tuning_vectors, means[tune]))
        token_ids = np.unique(np.concatenate([np.array(ids, dtype=np.int64) for ids in tokens]))
        # A ridge map may guess any length; no text is shorter or longer than those met.
        bounds = (float(lengths.min()), float(lengths.max()))
        return Relaxer(self, model, length, bounds, layer_map, token_ids, vocabulary)


@dataclass(frozen=True, eq=False)
class Relaxer:
    """A fitted gradient attacker: vectors in, word sets out."""

    attack: Relaxation
    encoder: OpenModel | OpenDual
    length: Ridge
    bounds: tuple[float, float]
    layer_map: Ridge | None
    tokens: Ids
    vocabulary: Vocabulary

    def predict(self, vectors: Floats, progress: Progress = silent) -> WordSets:
        return self.vocabulary.sets(self.texts(vectors, progress))

    def texts(self, vectors: Floats, progress: Progress = silent) -> list[str]:
        """The texts found: the likeliest token of each position, written out."""
        lengths = np.clip(np.rint(self.length(vectors)[:, 0]), *self.bounds).astype(int)
        targets = vectors if self.layer_map is None else self.layer_map(vectors)
        texts: list[str] = [""] * len(vectors)
        # Texts of like length share a batch, so that little of it is padding.
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), self.attack.batch):
            rows = order[start : start + self.attack.batch]
            ids = self._search(targets[rows].astype(np.float32), lengths[rows])
            for row, sequence, length in zip(rows, ids, lengths[rows], strict=True):
                texts[row] = self.encoder.decode(sequence[:length].tolist())
            progress("relaxation", min(start + len(rows), len(order)), len(order))
        return texts

    def _search(self, targets: Floats, lengths: Ids) -> Ids:
        import torch
        from torch import Tensor, nn

        from capelet.training.loop import Descent, StoppingRule, run

        model = self.encoder.model
        device = next(model.parameters()).device
        table = self.encoder.input_table()
        token_ids = torch.from_numpy(self.tokens).to(device)
        goal = torch.from_numpy(targets).to(device)
        read = self.encoder.reader(
            torch.from_numpy(np.asarray(lengths)).to(device), self.attack.layer
        )
        generator = torch.Generator().manual_seed(self.attack.seed)
        shape = (len(targets), int(lengths.max()), len(token_ids))
        # Nearly uniform, but not alike: equal positions would have equal gradients for ever.
        scores = nn.Parameter((0.01 * torch.randn(shape, generator=generator)).to(device))
        for parameter in model.parameters():
            # Only the scores move; gradients of the weights would cost as much again.
            parameter.requires_grad_(False)

        def loss_of(step: int) -> Tensor:
            # Eq. 5: a position is the mean token vector under its softmax.
            soft = (scores / self.attack.temperature).softmax(dim=2) @ table[token_ids]
            vector = read(soft)
            if self.layer_map is None:  # a released vector has its own length, most often one
                vector = vector * (goal.norm(dim=1) / vector.norm(dim=1).clamp(min=1e-9))[:, None]
            return ((vector - goal) ** 2).sum()

        optimiser = torch.optim.Adam([scores], lr=self.attack.learning_rate)
        steps = range(self.attack.steps)
        run(
            Descent(nn.ParameterList([scores]), optimiser, lambda epoch: steps, loss_of),
            StoppingRule(1),
        )
        return np.asarray(token_ids[scores.detach().argmax(dim=2)].cpu().numpy())
