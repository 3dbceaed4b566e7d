"""A private training learns the task, promises what it says, and depends on each row alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from capelet.data.labels import Attribute
from capelet.defences import METHODS, Settings, fit
from capelet.defences.bottleneck import SymbolLikelihood
from capelet.defences.dense import Dense
from capelet.defences.network import Body, Network
from capelet.defences.private_training import DENSE, LINEAR, _PrivateLearner
from capelet.defences.settings import Part, Schedule, TrainingPrivacy
from capelet.errors import CapeletError
from capelet.interfaces import silent
from capelet.mechanisms import Laplace
from capelet.privacy.replacement import Target
from capelet.release import PrivateEncoder
from capelet.training.loop import Position
from capelet.training.networks import dense

PRIVATE = Settings(epsilon=8.0, training=TrainingPrivacy(8.0), schedule=Schedule(device="cpu"))


@pytest.fixture(scope="module")
def part() -> Part:
    """3,000 vectors of length one, whose first coordinates tell the task of three classes."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 3, 3000).astype(np.intp)
    vectors = random.normal(size=(3000, 16)).astype(np.float32)
    vectors[np.arange(3000), codes] += 3.0
    secret = Attribute("secret", random.integers(0, 2, 3000).astype(np.intp), ("a", "b"))
    vectors[:, 5] += 2.0 * secret.codes
    task = Attribute("task", codes, ("x", "y", "z"))
    return Part(vectors, np.arange(2700), np.arange(2700, 3000), task, (secret,))


CAN = [name for name, item in METHODS.items() if item.private_training]


def settings_of(name: str) -> Settings:
    needs_epsilon = "epsilon" in METHODS[name].needs
    return replace(PRIVATE, epsilon=8.0 if needs_epsilon else None)


def test_the_table_says_which_methods_can() -> None:
    assert CAN == ["fx", "gr", "ldp", "cape", "bottleneck"]


@pytest.mark.parametrize("name", CAN)
def test_a_method_that_can_promises_it_to_its_training_texts(
    name: str, part: Part, tmp_path: Any
) -> None:
    defence = fit(name, part, settings_of(name))
    private = PrivateEncoder.load(PrivateEncoder(*defence.steps).save(tmp_path))
    training = private.guarantee.training
    assert training is not None and training.epsilon <= 8.0 and training.delta <= 1e-5
    assert (training.notion, training.unit, training.status) == ("central", "text", "proven")
    assert not defence.outcome.joint and not defence.outcome.losses  # exact figures
    again = fit(name, part, settings_of(name))
    assert again.outcome.map.digest != defence.outcome.map.digest  # its noise is nobody's seed


def test_the_bottleneck_learns_the_task(part: Part) -> None:
    private = PrivateEncoder(*fit("bottleneck", part, PRIVATE).steps)
    assert part.task is not None
    released = private.release(part.vectors).vectors.argmax(axis=1)
    assert (released == part.task.codes).mean() > 0.85
    # The control: of a few texts, at a small ε, the noise leaves nothing.
    few, little = replace(part, fit=part.fit[:60]), replace(PRIVATE, training=TrainingPrivacy(0.2))
    private = PrivateEncoder(*fit("bottleneck", replace(few, tune=few.fit[:0]), little).steps)
    assert (private.release(part.vectors).vectors.argmax(axis=1) == part.task.codes).mean() < 0.75


def test_a_dense_map_keeps_the_task(part: Part) -> None:
    """A fresh linear reader finds the task in what the private map gives."""
    from sklearn.linear_model import LogisticRegression

    assert part.task is not None
    features = fit("fx", part, settings_of("fx")).outcome.map(part.vectors)
    reader = LogisticRegression(max_iter=500).fit(features[:2000], part.task.codes[:2000])
    assert reader.score(features[2000:], part.task.codes[2000:]) > 0.8


def learner_of(part: Part, **changes: Any) -> _PrivateLearner:
    assert part.task is not None
    torch.manual_seed(0)
    body = Body(dense([part.width, 3]), "softmax", unit=True)
    settings = replace(PRIVATE, training=TrainingPrivacy(8.0, seed_noise=0))
    network = Network(body, [SymbolLikelihood(part.task)])
    return _PrivateLearner(network, replace(part, **changes), settings, LINEAR)


def gradient_before_noise(learner: _PrivateLearner) -> torch.Tensor:
    """The clipped sum over all units in the first step."""
    learner.step(learner.units, Position(0, 0, 0))
    weights = learner.network.parameters()
    sums = [weight.grad.flatten() * learner.expected for weight in weights]  # type: ignore[union-attr]
    return torch.cat(sums)


@pytest.mark.parametrize("members", [1, 4])
def test_replacing_one_unit_moves_the_sum_by_two_clips_at_most(
    part: Part, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that follows from the texts: vectors, classes and their frequencies, no scaling."""
    monkeypatch.setattr(Target, "noise", lambda self: 0.0)
    units = np.arange(400).reshape(-1, members)
    assert part.task is not None
    sums = []
    for change in (False, True):
        vectors, codes = part.vectors.copy(), part.task.codes.copy()
        if change:
            vectors[units[0]] = 1e3 * vectors[2000:2001]
            codes[units[0]] = (codes[units[0]] + 1) % 3
        other = replace(part, vectors=vectors, task=replace(part.task, codes=codes))
        learner = learner_of(other, units=units, population=800)
        assert learner.expected == LINEAR.share * 0.5 * 800  # not by how many are in the part
        sums.append(gradient_before_noise(learner))
        clip = learner.clip
    assert 0 < (sums[0] - sums[1]).norm() <= 2 * clip * (1 + 1e-4)


@pytest.mark.parametrize("noise", [False, True], ids=["gr", "cape"])
def test_with_adversaries_too_replacing_one_text_moves_the_sum_by_two_clips_at_most(
    part: Part, noise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adversaries' heads see the secret of each row alone, and count with the map."""
    monkeypatch.setattr(Target, "noise", lambda self: 0.0)
    dense_method = Dense(noise, "reversal")
    assert part.task is not None
    sums = []
    for change in (False, True):
        vectors, secret = part.vectors.copy(), part.secrets[0].codes.copy()
        if change:
            vectors[0], secret[0] = -1e3 * vectors[2000], 1 - secret[0]
        other = replace(part, vectors=vectors, secrets=(replace(part.secrets[0], codes=secret),))
        settings = replace(
            PRIVATE, adversary_weight=1.0, training=TrainingPrivacy(8.0, seed_noise=0)
        )
        before = Laplace(8.0) if noise else None
        network = dense_method._network(other, settings, before, False, silent)
        learner = _PrivateLearner(network, other, settings, DENSE)
        learner.random.manual_seed(0)  # the same Laplace noise on the rows that stay
        sums.append(gradient_before_noise(learner))
    assert 0 < (sums[0] - sums[1]).norm() <= 2 * DENSE.clip * (1 + 1e-4)


def test_seeded_noise_voids_the_promise(part: Part) -> None:
    seeded = replace(PRIVATE, training=TrainingPrivacy(8.0, seed_noise=1))
    first, again = (fit("bottleneck", part, seeded).outcome.map for _ in range(2))
    assert first.digest == again.digest and first.training.status == "none"


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in METHODS if name not in CAN])
def test_a_method_that_cannot_says_so(name: str, part: Part) -> None:
    with pytest.raises(CapeletError, match="cannot be trained with differential privacy"):
        fit(name, part, settings_of(name))


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("gr", {"keep": "neighbours"}, "a private training keeps a task"),
        ("fx", {"tune_layers": 1}, "leave tune_layers= out"),
        ("bottleneck", {"adversary_weight": 1.0}, "leave adversary_weight= out"),
        ("bottleneck", {"mechanism": "laplace"}, "one symbol for each class"),
    ],
)
def test_what_one_text_could_move_is_refused(
    name: str, changes: dict[str, Any], sentence: str, part: Part
) -> None:
    with pytest.raises(CapeletError, match=sentence):
        fit(name, part, replace(settings_of(name), **changes))


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(CapeletError, match="train_epsilon= is 0"):
        TrainingPrivacy(0.0)
    with pytest.raises(CapeletError, match="did you mean 'author'"):
        TrainingPrivacy(1.0, unit="authors")  # type: ignore[arg-type]
