"""Who the encoder is trained against: readers of words and readers of authors.

Each adversary is several networks that read the released vector, and a linear reader in closed
form, solved anew in every step. The networks are reset one after another: against one that lives as
long as the encoder, the encoder only learns to be ahead of *it*, and a fresh attacker reads on.
Losses are shares of what blind guessing loses, and the encoder gains nothing beyond 1: so λ has one
meaning for words and authors, and reversal has a bottom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from capelet.training.loop import descend
from capelet.training.networks import dense

# In units of the mean variance, so that shrinking the vectors does not blind the reader.
_RIDGE = 1e-3


class Reader(nn.Module):
    """Standardised coordinates, two dense layers, one score for each word or author.

    Standardising matters: an encoder could else hide by making a coordinate small.
    """

    def __init__(self, width: int, hidden: int, start: Tensor) -> None:
        super().__init__()
        self.hidden, self.start = hidden, start
        self.standard = nn.BatchNorm1d(width, affine=False)
        self.layers = dense([width, hidden, hidden, len(start)])
        self.reset()

    def reset(self) -> None:
        """Forget everything; the first guess is what a blind one would say."""
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.BatchNorm1d):
                part.reset_parameters()
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        with torch.no_grad():
            # Blind at first: frequencies in the biases, hardly anything in the weights.
            last.weight.mul_(0.1)
            last.bias.copy_(self.start.to(last.bias.device))

    def forward(self, vectors: Tensor) -> Tensor:
        scores: Tensor = self.layers(self.standard(vectors))
        return scores


class Adversary(nn.Module):
    """What adversaries of words and of authors share: readers, resets, and the ridge."""

    def __init__(self, width: int, hidden: int, start: Tensor, readers: int, renew: int) -> None:
        super().__init__()
        self.renew = renew
        self.readers = nn.ModuleList(Reader(width, hidden, start) for _ in range(readers))
        self.optimisers = [torch.optim.Adam(part.parameters(), lr=1e-3) for part in self.readers]

    def learn(self, vectors: Tensor, target: Tensor, step: int) -> None:
        """One step of every reader on vectors held constant; now and then one starts anew."""
        for place, (reader, optimiser) in enumerate(
            zip(self.readers, self.optimisers, strict=True)
        ):
            # Resets are spread over the period: there is always a reader that has had time to
            # learn.
            offset = place * self.renew // max(len(self.readers), 1)
            if self.renew and step and step % self.renew == offset:
                reader.reset()  # type: ignore[operator]
                optimiser.state.clear()
            descend(optimiser, self.share(reader(vectors.detach()), target))

    def read(self, vectors: Tensor, target: Tensor) -> Tensor:
        """How much the readers and the ridge know, from 0 (nothing) to 1: what λ multiplies."""
        # Beyond 1 a reader is worse than blind: to make it worse still would hide nothing.
        shares = [1 - self.share(reader(vectors), target).clamp(max=1.0) for reader in self.readers]
        return torch.stack(shares).mean() + self.linear_knowledge(vectors, target)

    def share(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss as a share of blind guessing's."""
        raise NotImplementedError

    def linear_knowledge(self, vectors: Tensor, target: Tensor) -> Tensor:
        """The share that a closed-form reader knows of the half that it did not learn from."""
        raise NotImplementedError


class Words(Adversary):
    """Which words stand in the sentence: one yes-or-no question for each (eq. 8).

    `numbers` are the word numbers asked for, `shares` the share of sentences that hold each.
    """

    def __init__(
        self,
        width: int,
        numbers: npt.NDArray[np.int64],
        shares: npt.NDArray[np.float64],
        readers: int,
        renew: int,
        words: int,
        hidden: int = 768,
    ) -> None:
        # Clamped: a word in all or in no sentence would have an infinite logit.
        share = torch.from_numpy(shares).float().clamp(1e-6, 1 - 1e-6)
        super().__init__(width, hidden, torch.logit(share), readers, renew)
        place = torch.full((words,), len(numbers), dtype=torch.long)
        place[torch.from_numpy(numbers)] = torch.arange(len(numbers))
        self.place: Tensor
        self.weight: Tensor
        self.register_buffer("place", place)
        self.register_buffer("weight", share * (1 - share))
        entropy = -(share * share.log() + (1 - share) * (1 - share).log())
        # What guessing by frequency loses: the unit of the loss.
        self.blind = float(entropy.sum())

    def target(self, tokens: Tensor) -> Tensor:
        """`(rows, words)` with 1 where a word stands in the sentence."""
        size = len(self.weight)
        hot = torch.zeros(len(tokens), size + 1, device=tokens.device)
        return hot.scatter_(1, self.place[tokens], 1.0)[:, :size]

    def share(self, scores: Tensor, target: Tensor) -> Tensor:
        total = functional.binary_cross_entropy_with_logits(scores.float(), target, reduction="sum")
        return total / (len(target) * self.blind)

    def linear_knowledge(self, vectors: Tensor, target: Tensor) -> Tensor:
        return _squared_correlation(vectors, target - target.mean(dim=0), self.weight)


class Authors(Adversary):
    """Who wrote the sentence: one class for each author; rows of unknown authors are left out."""

    def __init__(
        self, width: int, counts: npt.NDArray[np.int64], readers: int, renew: int, hidden: int = 384
    ) -> None:
        share = torch.from_numpy(counts / counts.sum()).float().clamp(min=1e-9)
        super().__init__(width, hidden, share.log(), readers, renew)
        # At least one bit, or two authors of whom one wrote nearly everything would make any loss
        # huge.
        self.blind = max(float(-(share * share.log()).sum()), math.log(2))

    def share(self, scores: Tensor, target: Tensor) -> Tensor:
        present = target >= 0
        if not present.any():
            # As good as blind, and with a gradient (of zero), which the optimiser expects.
            return scores.sum() * 0 + 1.0
        return functional.cross_entropy(scores[present].float(), target[present]) / self.blind

    def linear_knowledge(self, vectors: Tensor, target: Tensor) -> Tensor:
        """Half the spread between the authors' means in whitened vectors, as a share of blind.

        For Gaussian clouds of one shape that is what a linear reader learns, in nats. The means of
        one half of the rows are multiplied with those of the other, so that chance cancels out.
        """
        half = len(vectors) // 2
        inside = (vectors - vectors.mean(dim=0)).double()
        gram = inside.mT @ inside / len(inside)
        scale = gram.diagonal().mean() * 10 * _RIDGE + 1e-12
        root = torch.linalg.cholesky_ex(gram + scale * torch.eye(len(gram), device=gram.device))[0]
        white = torch.linalg.solve_triangular(root, inside.mT, upper=False).mT.float()
        present = (target >= 0).float()[:, None]
        start = self.readers[0].start
        assert isinstance(start, Tensor)
        hot = functional.one_hot(target.clamp(min=0), len(start)).float() * present
        white = white - (white * present).sum(dim=0) / present.sum().clamp(min=1)
        first, second = hot[:half], hot[half : 2 * half]
        counts = torch.stack([first.sum(dim=0), second.sum(dim=0)])
        means = torch.stack([first.T @ white[:half], second.T @ white[half : 2 * half]])
        means = means / counts.clamp(min=1)[:, :, None]
        weight = counts.sum(dim=0) * (counts > 0).all(dim=0)
        # Two rows less the mean of all are a little against each other; that is not about authors.
        chance = (white**2).sum().detach() / present.sum().clamp(min=1) ** 2
        between = (means[0] * means[1]).sum(dim=1) + chance
        return 0.5 * (between * weight).sum() / weight.sum().clamp(min=1) / self.blind


def _squared_correlation(vectors: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Mean squared correlation of a ridge guess with each column, on the other half of the rows.

    Columns count by `weight`. The guess is linear in whitened vectors, so no direction is too small
    to be read.
    """
    half = len(vectors) // 2
    inside = vectors[: 2 * half].float()
    inside = (inside - inside.mean(dim=0)).view(2, half, -1)
    truth = target[: 2 * half].view(2, half, -1)
    # Near-flat directions make this ill-conditioned: single precision would lose the small ones.
    wide = inside.double()
    gram = wide.mT @ wide / half
    scale = gram.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]
    ridge = (_RIDGE * scale + 1e-12) * torch.eye(gram.shape[-1], device=gram.device)
    root = torch.linalg.cholesky_ex(gram + ridge)[0]
    slope = torch.cholesky_solve((inside.mT @ truth / half).double(), root).float()
    guess = inside @ slope.flip(0)
    guess = guess - guess.mean(dim=1, keepdim=True)
    truth = truth - truth.mean(dim=1, keepdim=True)
    covariance = (guess * truth).mean(dim=1).clamp(min=0) ** 2
    variance = (guess**2).mean(dim=1) * (truth**2).mean(dim=1)
    each = (covariance / (variance + 1e-12)).mean(dim=0)
    return (each * weight).sum() / weight.sum()


def count_words(
    tokens: npt.NDArray[np.int64], words: Sequence[str], most: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The numbers of the `most` most frequent words (signs left out), and each one's share."""
    counts = np.zeros(len(words), dtype=np.int64)
    for start in range(0, len(tokens), 1 << 16):
        block = np.sort(tokens[start : start + (1 << 16)], axis=1)
        new = np.ones(block.shape, dtype=bool)
        new[:, 1:] = block[:, 1:] != block[:, :-1]
        counts += np.bincount(block[new], minlength=len(words))
    able = [
        number
        for number, word in enumerate(words)
        if number > 1 and word[0].isalnum() and counts[number]
    ]
    numbers = np.array(able[:most], dtype=np.int64)
    return numbers, counts[numbers] / max(len(tokens), 1)
