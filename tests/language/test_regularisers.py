"""The penalties have the right signs and bounds, and each has its control."""

from __future__ import annotations

import math

import torch

from capelet.language.regularisers import (
    Discriminator,
    paired_triplet,
    states_at,
    to_uniform,
    triplet,
)
from capelet.language.vocabulary import PAD


def clustered(rows: int = 40, width: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    authors = torch.arange(rows) % 4
    centres = torch.randn(4, width, generator=random)
    return centres[authors] + 0.3 * torch.randn(rows, width, generator=random), authors


def test_uniform_guesses_cost_log_m_and_no_less() -> None:
    assert math.isclose(float(to_uniform(torch.zeros(5, 7))), math.log(7), rel_tol=1e-6)
    assert float(to_uniform(torch.randn(50, 7))) > math.log(7)


def test_the_penalty_is_the_divergence_from_uniform_plus_log_m() -> None:
    scores = torch.randn(1, 5)
    p = scores.softmax(1)[0]
    divergence = float((0.2 * (math.log(0.2) - p.log())).sum())
    assert math.isclose(float(to_uniform(scores)), divergence + math.log(5), rel_tol=1e-5)


def test_states_that_gather_by_author_are_penalised_and_shuffled_ones_are_not() -> None:
    states, authors = clustered()
    shuffled = authors[torch.randperm(len(authors), generator=torch.Generator().manual_seed(1))]
    assert float(triplet(states, authors)) > 0.8
    assert float(triplet(states, shuffled)) < 0.25


def test_descent_mixes_the_authors() -> None:
    """The right signs: following the gradient, different authors come together."""
    states, authors = clustered()
    states.requires_grad_()
    optimiser = torch.optim.Adam([states], lr=0.05)
    before = float(triplet(states.detach(), authors))
    for _ in range(200):
        optimiser.zero_grad()
        triplet(states, authors).backward()
        optimiser.step()
    assert float(triplet(states.detach(), authors)) < 0.1 * before


def test_the_triplet_lies_between_0_and_4_for_states_of_any_length() -> None:
    states, authors = clustered()
    assert 0 <= float(triplet(1e6 * states, authors)) <= 4
    assert math.isclose(
        float(triplet(1e6 * states, authors)), float(triplet(states, authors)), rel_tol=1e-4
    )


def test_without_pairs_there_is_no_penalty() -> None:
    states = torch.randn(4, 3)
    assert float(triplet(states, torch.zeros(4, dtype=torch.long))) == 0  # no different author
    assert float(triplet(states, torch.arange(4))) == 0  # nobody twice
    assert float(paired_triplet(states, states, torch.arange(4), torch.arange(4))) == 0


def test_the_second_pass_adds_for_different_and_subtracts_for_the_same_author() -> None:
    one, two = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    a, b = torch.tensor([0]), torch.tensor([1])
    assert math.isclose(float(paired_triplet(one, two, a, b)), 2.0, rel_tol=1e-6)
    assert math.isclose(float(paired_triplet(one, two, a, a)), -2.0, rel_tol=1e-6)


def test_states_are_those_that_predict_a_word() -> None:
    tokens = torch.tensor([[2, 5, 6, 3, PAD], [2, 5, 6, 7, 3]])
    hidden = torch.arange(8.0).view(2, 4, 1)
    assert states_at(hidden, tokens, "last").flatten().tolist() == [2.0, 7.0]
    random = torch.Generator().manual_seed(0)
    drawn = torch.stack([states_at(hidden, tokens, "random", random).flatten() for _ in range(200)])
    assert set(drawn[:, 0].tolist()) == {1.0, 2.0}
    assert set(drawn[:, 1].tolist()) == {5.0, 6.0, 7.0}


def test_a_discriminator_learns_authors_from_clustered_states_only() -> None:
    states, authors = clustered(200)
    torch.manual_seed(0)

    def accuracy(features: torch.Tensor) -> float:
        guesser = Discriminator(8, 4, hidden=32)
        optimiser = torch.optim.Adam(guesser.parameters(), lr=0.01)
        for _ in range(60):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(guesser(features[:100]), authors[:100]).backward()
            optimiser.step()
        said = guesser(features[100:]).argmax(1)
        return float((said == authors[100:]).float().mean())

    assert accuracy(states) > 0.9
    assert accuracy(torch.randn(200, 8)) < 0.45
