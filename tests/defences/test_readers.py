"""Readers: they read what is there, nothing in noise, and say it of vectors that nobody wrote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from capelet.defences.fitting import Part, Schedule
from capelet.defences.network import Body, Network
from capelet.defences.readers import Mixing, Reader, read
from capelet.defences.terms import Batch, Independence
from capelet.training.networks import dense

SCHEDULE = Schedule(device="cpu")


def reached(reader: Reader, part: Part, place: int, rows: Any) -> float:
    """The share of these rows whose likeliest class is the true one."""
    sizes = [len(item.classes) for item in part.secrets]
    said = torch.split(reader(torch.tensor(part.vectors[rows])), sizes, dim=1)[place]
    return float((said.argmax(dim=1).numpy() == part.secrets[place].codes[rows]).mean())


def test_a_reader_reads_a_line_and_a_radius_off_rows_it_never_saw(world: Any) -> None:
    part = world.part
    reader = read(part, SCHEDULE)
    chances = reader(torch.tensor(part.vectors[part.tune]))
    assert chances.shape == (len(part.tune), 4)
    torch.testing.assert_close(chances[:, :2].sum(dim=1), torch.ones(len(part.tune)))
    assert not chances.requires_grad
    for place, least in ((0, 0.75), (1, 0.7)):
        assert reached(reader, part, place, part.tune) > least


def test_a_reader_finds_nothing_in_noise(world: Any) -> None:
    random = np.random.default_rng(0)
    shuffled = tuple(
        replace(item, codes=random.permutation(item.codes)) for item in world.part.secrets
    )
    part = replace(world.part, secrets=shuffled)
    reader = read(part, SCHEDULE)
    for place in (0, 1):
        assert abs(reached(reader, part, place, part.tune) - 0.5) < 0.12


def test_the_same_seed_gives_the_same_reader(world: Any) -> None:
    x = torch.tensor(world.part.vectors[:50])
    first, again = (read(world.part, SCHEDULE)(x) for _ in range(2))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    other = read(world.part, replace(SCHEDULE, seed=1))(x)
    assert (first - other).abs().max() > 1e-4


def test_a_reader_is_not_trained_along(world: Any) -> None:
    reader = read(world.part, SCHEDULE)
    term = Independence(world.part.secrets, 1.0, reader)
    assert not any(item.requires_grad for item in term.parameters())


def test_independence_of_what_a_reader_says(world: Any) -> None:
    """The term sees the leak also in vectors whose labels are all missing."""
    part = world.part
    term = Independence(part.secrets, 1.0, read(part, SCHEDULE), warm=0.0)
    network = Network(Body(dense([part.width, 4])), [term])
    network.weights = {item.name: torch.ones(len(item.classes)) for item in part.secrets}
    x = torch.tensor(part.vectors[:1024])
    blank = {item.name: torch.full((len(x),), -1) for item in part.secrets}
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))

    def explained(features: torch.Tensor) -> float:
        random = torch.Generator().manual_seed(0)
        batch = Batch(x, features, blank, 1.0, random)
        with torch.no_grad():
            return float(np.mean([float(term(batch, network)) for _ in range(20)]))

    assert explained(x) > 0.4
    assert explained(noise) < 0.05


def test_mixtures_lie_between_two_texts_and_mostly_near_their_own() -> None:
    x = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
    mixed = Mixing()(x, torch.Generator().manual_seed(1))
    again = Mixing()(x, torch.Generator().manual_seed(1))
    torch.testing.assert_close(mixed, again, rtol=0, atol=0)
    moved = (mixed - x).norm(dim=1)
    far = torch.cdist(x, x).max()
    assert float(moved.mean()) > 0
    assert float(moved.max()) <= float(far) / 2
    still = Mixing(most=0.0)(x, torch.Generator().manual_seed(1))
    torch.testing.assert_close(still, x)
    assert Mixing()(x[:1], torch.Generator()) is not None  # nobody to mix with
