"""A bottleneck serves the task at a real ε, tells little else, and its choice can be repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capelet.data.labels import Attribute
from capelet.defences.bottleneck import _mechanisms, squeeze
from capelet.defences.fitting import Schedule
from capelet.defences.settings import Settings
from capelet.mechanisms import Laplace, PrivUnit, RandomisedResponse
from capelet.privacy.guarantees import Guarantee, ceiling

QUICK = Schedule(epochs=10, device="cpu")


def through(candidate: Any) -> Any:
    return lambda rows: candidate.mechanism(candidate.outcome.map(rows))


@pytest.fixture(scope="module")
def best(world: Any) -> Any:
    return squeeze(world.part, Settings(4.0, schedule=QUICK))


def test_it_serves_the_task_at_a_real_epsilon_where_plain_noise_does_not(
    world: Any, best: Any
) -> None:
    plain = world.reads("task", through=Laplace(4.0))
    served = world.reads("task", through=through(best))
    assert served > 0.85 > plain + 0.15
    most = ceiling([0.5, 0.5], Guarantee(4.0))
    assert most is not None and served <= most + 0.01
    assert best.mechanism.guarantee == Guarantee(4.0, caveat=best.mechanism.guarantee.caveat)


def test_what_does_not_serve_the_task_does_not_pass(world: Any, best: Any) -> None:
    assert world.reads("line") > 0.9 and world.reads("line", through=through(best)) < 0.6
    assert world.reads("radius", "kernel", through(best)) < 0.6


def test_the_choice_is_repeatable(world: Any, best: Any) -> None:
    again = squeeze(world.part, Settings(4.0, schedule=QUICK))
    assert again.mechanism == best.mechanism and again.score == best.score
    assert again.outcome.map.digest == best.outcome.map.digest


@pytest.mark.parametrize("name", ["response", "laplace", "privunit"])
def test_each_mechanism_can_be_asked_for(world: Any, name: str) -> None:
    kinds = {"response": RandomisedResponse, "laplace": Laplace, "privunit": PrivUnit}
    made = squeeze(world.part, Settings(8.0, mechanism=name, schedule=QUICK))
    assert isinstance(made.mechanism, kinds[name]) and made.mechanism.epsilon == 8.0
    assert world.reads("task", through=through(made)) > 0.8
    assert made.outcome.map.dimension == through(made)(world.others[:3]).shape[1]


def test_guarded_symbols_lose_a_secret_that_the_task_carries(world: Any) -> None:
    """The secret *is* correlated with the task: λ decides how much of it passes."""
    part = world.part
    random = np.random.default_rng(0)
    flip = random.random(len(part.vectors)) < 0.1
    codes = np.where(flip, 1 - part.task.codes, part.task.codes).astype(np.intp)
    tied = type(part)(
        part.vectors, part.fit, part.tune, part.task, (Attribute("tied", codes, ("no", "yes")),)
    )
    free = squeeze(tied, Settings(8.0, mechanism="response", schedule=QUICK))
    held = squeeze(tied, Settings(8.0, adversary_weight=3.0, schedule=QUICK))
    assert isinstance(held.mechanism, RandomisedResponse)
    assert world.reads("task", through=through(free)) > 0.85
    assert world.reads("task", through=through(held)) < 0.7


def test_symbols_are_no_more_than_the_task_has_classes() -> None:
    two = Attribute("t", np.array([0, 1]), ("a", "b"))
    five = Attribute("t", np.arange(5), tuple("abcde"))
    twenty = Attribute("t", np.arange(20), tuple("abcdefghijklmnopqrst"))
    symbols = [
        [item.classes for item in _mechanisms(task, 2.0, "response")]
        for task in (two, five, twenty)
    ]
    assert symbols == [[2], [2, 3, 4, 5], [2, 3, 4, 5, 6, 7, 8]]
    assert len(_mechanisms(five, 2.0, "auto")) == 6
