"""Two penalties that keep an author out of a language model's hidden states.

Both are added to the loss of the language model with a strength λ (Mireshghallah et al. 2021).

- `Discriminator`: a network that guesses the author from a state, with its own optimiser. The model
  is penalised by the cross-entropy of its guess to the uniform distribution, −(1/M) Σ_c log p(c),
  whose least value log M means that the state tells nothing.
- `triplet`: states of *different* authors are pulled together, those of the *same* author pushed
  apart. (Equation 4 of the paper prints these signs reversed against its equation 3 and its text.)
  States are normalised first, or pushing apart would have no end, and a state that is no nearer to
  its author's than to others' is left alone: pulling it further costs words and hides nothing.

Which state stands for a text is `position`: the `last` one, as in the paper, or that of a `random`
prefix. A secret is told by the states inside it, and the last state says little about those.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from capelet.language.vocabulary import PAD

POSITIONS = ("last", "random")


class Discriminator(nn.Module):
    """Two dense layers that guess the author from a hidden state."""

    def __init__(self, width: int, authors: int, hidden: int = 1000) -> None:
        super().__init__()
        self.first = nn.Linear(width, hidden)
        self.second = nn.Linear(hidden, authors)

    def forward(self, states: Tensor) -> Tensor:
        return self.second(functional.relu(self.first(states)))


def to_uniform(scores: Tensor) -> Tensor:
    """Cross-entropy from uniform to the guess: KL(uniform ‖ p) + log M, so at least log M.

    >>> round(float(to_uniform(torch.zeros(3, 4))), 4)  # log 4
    1.3863
    """
    # The mean over classes is the 1/M of −(1/M) Σ_c log p(c); that over rows is the batch's.
    return -scores.log_softmax(dim=1).mean()


def triplet(states: Tensor, authors: Tensor) -> Tensor:
    """How much nearer each state lies to its own author's states than to others', on average.

    Over all pairs of the batch: for each state the mean squared distance to states of different
    authors, minus that to the same author's, where it is positive. Lies between 0 and 4; 0 means
    that states do not gather by author. A state without both kinds of pairs does not count.

    >>> states = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> float(triplet(states, torch.tensor([0, 0, 1, 1]))), float(
    ...     triplet(states, torch.tensor([0, 1, 0, 1]))
    ... )
    (2.0, 0.0)
    """
    unit = functional.normalize(states, dim=1)
    # ‖a − b‖² = 2 − 2·a·b, since both have length 1.
    apart = 2 - 2 * unit @ unit.T
    same = authors[:, None] == authors[None, :]
    # A state is no pair with itself: its distance 0 would pull the mean down.
    own = same & ~torch.eye(len(states), dtype=torch.bool, device=states.device)
    has_pairs = own.any(1) & (~same).any(1)
    nearer = torch.relu(_row_means(apart, ~same) - _row_means(apart, own))
    return (nearer * has_pairs).sum() / has_pairs.sum().clamp_min(1)


def _row_means(values: Tensor, mask: Tensor) -> Tensor:
    # Without a pair the sum is 0 already; the 1 only avoids 0/0.
    return (values * mask).sum(1) / mask.sum(1).clamp_min(1)


def paired_triplet(
    states: Tensor, others: Tensor, authors: Tensor, other_authors: Tensor
) -> Tensor:
    """The paper's form, on a batch and a second one row by row: different minus same, in [−4, 4].

    Each term is the mean over its own pairs, and 0 without any.
    """
    unit, other = functional.normalize(states, dim=1), functional.normalize(others, dim=1)
    apart = (unit - other).square().sum(1)
    same = authors == other_authors

    def mean(mask: Tensor) -> Tensor:
        return (apart * mask).sum() / mask.sum().clamp_min(1)

    return mean(~same) - mean(same)


def states_at(
    hidden: Tensor, tokens: Tensor, position: str, generator: torch.Generator | None = None
) -> Tensor:
    """One state per text: the last that predicts something, or that after a random prefix."""
    # A state counts by the word that it predicts: the one after the end sign predicts nothing.
    counts = (tokens[:, 1:] != PAD).sum(1)
    if position == "last":
        place = counts - 1
    else:
        share = torch.rand(len(tokens), generator=generator).to(tokens.device)
        # Position 0 is the start sign, whose state is the same for every text.
        place = torch.minimum(1 + (share * (counts - 1)).long(), counts - 1)
    return hidden[torch.arange(len(tokens), device=hidden.device), place]
