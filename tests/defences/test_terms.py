"""Each term asks for what it says, and what it must not touch it leaves alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from capelet.data.labels import Attribute
from capelet.defences.fitting import Schedule, train
from capelet.defences.network import Body, Network
from capelet.defences.settings import HeadShape
from capelet.defences.terms import (
    Batch,
    BoundedReversal,
    CrossGradient,
    Independence,
    Neighbourhood,
    Reversal,
    SymbolIndependence,
    SymbolTask,
    Task,
    _chance_loss,
    class_weights,
    known_loss,
)
from capelet.training.networks import Residual, dense


def attribute(name: str, codes: Any, classes: int = 2) -> Attribute:
    return Attribute(name, np.asarray(codes, dtype=np.intp), tuple("abcdefgh"[:classes]))


def setting(
    rows: int = 64, missing: bool = False, width: int = 6
) -> tuple[Tensor, dict[str, Tensor], Attribute, Attribute]:
    random = np.random.default_rng(0)
    x = torch.tensor(random.normal(size=(rows, width)), dtype=torch.float32)
    task, secret = random.integers(0, 2, rows), random.integers(0, 2, rows)
    if missing:
        task[:], secret[:] = -1, -1
    codes = {"task": torch.tensor(task), "secret": torch.tensor(secret)}
    return x, codes, attribute("task", task), attribute("secret", secret)


def network_of(term: Any, secret: Attribute, width: int = 6) -> Network:
    made = Network(Body(dense([6, width])), [term])
    made.weights = {secret.name: torch.ones(len(secret.classes))}
    return made


def batch_of(network: Network, x: Tensor, codes: dict[str, Tensor], share: float = 1.0) -> Batch:
    return network.batch(x, codes, share, torch.Generator().manual_seed(0))


def body_gradient(network: Network, loss: Tensor) -> Tensor:
    network.zero_grad()
    loss.backward()
    return torch.cat(
        [
            (item.grad if item.grad is not None else torch.zeros_like(item)).flatten()
            for item in network.body.parameters()
        ]
    )


# ---- missing values ------------------------------------------------------------------------------


def test_missing_values_weigh_nothing() -> None:
    said = torch.tensor([[2.0, 0.0], [0.0, 1.0], [5.0, -5.0]])
    known = known_loss(said[:2], torch.tensor([0, 1]))
    assert known_loss(said, torch.tensor([0, 1, -1])) == known
    assert known_loss(said, torch.tensor([-1, -1, -1])) == 0
    assert known_loss(said, torch.tensor([0, 1, 1])) != known


@pytest.mark.parametrize("kind", ["task", "reversal", "cross", "kernel", "symbol", "symbols"])
def test_a_batch_without_a_known_value_moves_nothing(kind: str) -> None:
    x, codes, _, secret = setting(missing=True)
    # the attributes of the whole part have values, only this batch has none
    known = {"task": attribute("task", [0, 1]), "secret": attribute("secret", [0, 1])}
    made: dict[str, Any] = {
        "task": lambda: Task(6, known["task"]),
        "reversal": lambda: Reversal(6, [known["secret"]], 1.0),
        "cross": lambda: CrossGradient(6, known["task"], [known["secret"]]),
        "kernel": lambda: Independence([known["secret"]], 1.0),
        "symbol": lambda: SymbolTask(6, known["task"]),
        "symbols": lambda: SymbolIndependence([known["secret"]], 1.0),
    }
    network = network_of(made[kind](), secret)
    if kind.startswith("symbol"):
        network.body.activation = "softmax"
    loss = network(batch_of(network, x, codes)).sum()
    assert torch.isfinite(loss)
    moved = body_gradient(network, loss)
    assert torch.isfinite(moved).all() and moved.abs().max() == 0


def test_rare_classes_weigh_as_much_as_common_ones() -> None:
    codes = torch.tensor([0] * 90 + [1] * 10 + [-1] * 50)
    weights = class_weights(attribute("secret", [0, 1]), codes)
    torch.testing.assert_close(weights * torch.tensor([90.0, 10.0]), torch.tensor([50.0, 50.0]))


# ---- reversal and cross-gradient -----------------------------------------------------------------


def test_reversal_turns_the_gradient_of_the_body_and_not_that_of_the_heads() -> None:
    x, codes, _, secret = setting()
    network = network_of(Reversal(6, [secret], lam=1.0), secret)
    head = next(network.terms[0].parameters())

    def both(lam: float, share: float = 1.0) -> tuple[Tensor, Tensor]:
        network.terms[0].lam = lam  # type: ignore[assignment]
        body = body_gradient(network, network(batch_of(network, x, codes, share)).sum())
        assert head.grad is not None
        return body, head.grad.clone()

    plain, heads = both(1.0)
    strong, same = both(3.0)
    torch.testing.assert_close(strong, 3 * plain)
    torch.testing.assert_close(same, heads)  # λ acts once
    assert both(0.0)[0].abs().max() == 0 and plain.abs().max() > 0
    network.terms[0].warm = 0.5  # type: ignore[assignment]
    torch.testing.assert_close(both(1.0, share=0.25)[0], 0.5 * plain)
    features = network.body(x)
    forward = known_loss(network.terms[0].heads[0](features), codes["secret"])  # type: ignore
    torch.testing.assert_close(body_gradient(network, forward), -plain)


def test_cross_gradient_trains_the_shared_layers_for_the_task_alone() -> None:
    """The adversaries' loss reaches the body only as a direction of perturbation, held constant."""
    x, codes, task, secret = setting()
    torch.manual_seed(0)
    term = CrossGradient(6, task, [secret], step=0.0)
    network = network_of(term, secret)
    got = body_gradient(network, network(batch_of(network, x, codes)).sum())
    alone = body_gradient(network, known_loss(term.head(network.body(x)), codes["task"]))
    torch.testing.assert_close(got, alone)  # without a step nothing of the secret is left in it
    network.zero_grad()
    network(batch_of(network, x, codes)).sum().backward()
    assert next(term.heads.parameters()).grad.abs().max() > 0  # type: ignore[union-attr]


def test_cross_gradient_is_the_printed_sum_with_labels_in_their_places() -> None:
    x, codes, task, secret = setting()
    torch.manual_seed(1)
    term = CrossGradient(6, task, [secret], step=5.0, mix=0.5)
    network = network_of(term, secret)
    got = network(batch_of(network, x, codes)).sum()

    def task_loss(rows: Tensor) -> Tensor:
        return known_loss(term.head(network.body(rows)), codes["task"])

    def secret_loss(rows: Tensor) -> Tensor:
        return known_loss(term.heads[0](network.body(rows)), codes["secret"])

    moved = x.clone().requires_grad_()
    towards_task = torch.autograd.grad(task_loss(moved) * len(x), moved)[0]
    towards_secret = torch.autograd.grad(secret_loss(moved) * len(x), moved)[0]
    wanted = 0.5 * (
        task_loss(x)
        + task_loss(x + 5 * towards_secret)
        + secret_loss(x)
        + secret_loss(x + 5 * towards_task)
    )
    torch.testing.assert_close(got, wanted)


# ---- neighbours ----------------------------------------------------------------------------------


def test_neighbourhood_asks_for_the_order_of_cosines_and_nothing_else() -> None:
    x, codes, _, secret = setting()
    network = network_of(Neighbourhood(weight=2.0), secret)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(3)))[0]

    def loss(features: Tensor) -> float:
        return float(network(replace(batch_of(network, x, codes), features=features)).sum())

    assert loss(3.0 * x @ turn) < 1e-6
    assert loss(x * torch.tensor([1.0, 1, 1, 1, 1, 9])) > 0.1
    assert math.isinf(network.terms[0].blind())  # type: ignore[operator]


# ---- independence --------------------------------------------------------------------------------


def explained(features: Tensor, secret: Attribute, draws: int = 40) -> float:
    """The term's mean over many draws of its adversary."""
    term = Independence([secret], 1.0, warm=0.0)
    network = network_of(term, secret)
    random = torch.Generator().manual_seed(0)
    codes = {secret.name: torch.tensor(secret.codes)}
    batch = Batch(features, features, codes, 1.0, random)
    with torch.no_grad():
        return float(np.mean([float(term(batch, network)) for _ in range(draws)]))


def test_independence_sees_a_line_and_a_radius_and_nothing_in_noise(world: Any) -> None:
    x = torch.tensor(world.part.vectors[:1024])
    line, radius = (replace(item, codes=item.codes[:1024]) for item in world.part.secrets)
    shuffled = replace(line, codes=np.random.default_rng(0).permutation(line.codes))
    assert explained(x, line) > 0.3
    assert explained(x, radius) > 0.1
    assert explained(x, shuffled) < 0.02


def test_independence_keeps_a_fresh_kernel_attacker_from_the_radius(world: Any) -> None:
    """λ = 0 leaves the leak where it was; λ takes it away, and the task stays."""
    part = world.secrets("radius")

    def trained(lam: float) -> Any:
        torch.manual_seed(0)
        body = Body(Residual(part.width, 64))
        terms = [Task(part.width, part.task), Independence(part.secrets, lam)]
        schedule = Schedule(
            epochs=50, batch=400, rate=3e-3, patience=None, cooling=True, device="cpu"
        )
        return train(Network(body, terms), part, schedule).map

    before = world.reads("radius", "kernel")
    idle, guarded = trained(0.0), trained(10.0)
    assert before > 0.8
    assert world.reads("radius", "kernel", idle) > before - 0.08
    assert world.reads("radius", "kernel", guarded) < before - 0.15
    assert world.reads("task", "linear", guarded) > world.reads("task") - 0.05


def test_independence_needs_a_batch_to_split() -> None:
    x, codes, _, secret = setting(rows=40)
    network = network_of(Independence([secret], 1.0), secret)
    assert float(network(batch_of(network, x, codes)).sum().detach()) == 0


# ---- symbols -------------------------------------------------------------------------------------


def test_the_loss_of_a_symbol_is_the_mean_over_its_draws() -> None:
    task = attribute("task", [0] * 5 + [1] * 3 + [2] * 2, 3)
    term = SymbolTask(3, task)
    features = torch.softmax(torch.randn(10, 3, generator=torch.Generator().manual_seed(2)), dim=1)
    codes = {"task": torch.tensor(task.codes)}
    network = network_of(term, task)
    got = term(Batch(features, features, codes, 1.0, torch.Generator()), network)
    log = torch.log_softmax(term.table, dim=1)
    wanted = -sum(
        features[row, symbol] * log[symbol, task.codes[row]]
        for row in range(10)
        for symbol in range(3)
    )
    torch.testing.assert_close(got, wanted / 10)


def test_what_a_symbol_gives_away_is_the_gain_of_the_best_attacker() -> None:
    secret = attribute("secret", [0, 0, 1, 1])
    network = network_of(SymbolIndependence([secret], lam=2.0), secret)

    def gain(rows: list[list[float]]) -> float:
        features = torch.tensor(rows, dtype=torch.float32)
        codes = {"secret": torch.tensor(secret.codes)}
        return float(network(Batch(features, features, codes, 1.0, torch.Generator())).sum())

    assert gain([[1, 0], [1, 0], [0, 1], [0, 1]]) == pytest.approx(2.0)  # the symbol is the secret
    assert gain([[1, 0], [0, 1], [1, 0], [0, 1]]) == pytest.approx(0.0)  # it says nothing of it
    assert gain([[0.75, 0.25]] * 2 + [[0.25, 0.75]] * 2) == pytest.approx(1.0)


# ---- the bounded adversary, λ by attribute, heads ------------------------------------------------


def test_the_bounded_loss_has_a_bottom_and_reversal_has_none() -> None:
    """Where the head is wrong, −L still falls as fast as ever, and −log(1 − P) asks for nothing."""
    truth, alike = torch.tensor([1]), torch.ones(2)

    def slopes(score: float) -> tuple[float, float]:
        scores = torch.tensor([[-score, score]], requires_grad=True)
        bounded = torch.autograd.grad(_chance_loss(scores, truth, alike), scores)[0]
        reversal = torch.autograd.grad(-known_loss(scores, truth, alike), scores)[0]
        return float(bounded[0, 1]), float(reversal[0, 1])

    assert slopes(-10.0) == pytest.approx((0.0, 1.0), abs=1e-6)
    assert slopes(10.0) == pytest.approx((1.0, 0.0), abs=1e-6)
    assert float(_chance_loss(torch.tensor([[50.0, -50.0]]), truth, alike)) == 0.0


def test_the_bounded_loss_is_minus_the_log_of_the_other_classes() -> None:
    x, codes, _, secret = setting()
    network = network_of(BoundedReversal(6, [secret], lam=2.0), secret)
    term: Any = network.terms[0]
    batch = batch_of(network, x, codes)
    scores = term.heads[0](batch.features)
    truth = codes["secret"][:, None]
    chance = torch.softmax(scores, dim=1).gather(1, truth)[:, 0]
    weight = network.weights["secret"][codes["secret"]]
    penalty = -(weight * torch.log(1 - chance)).sum() / weight.sum()
    own = known_loss(scores, codes["secret"], network.weights["secret"])
    torch.testing.assert_close(network(batch).sum(), own + 2 * penalty)
    # The heads have their own loss alone, whatever λ is; the body has nothing of it.
    grown = torch.autograd.grad(network(batch).sum(), list(term.heads.parameters()))
    plain = torch.autograd.grad(own, list(term.heads.parameters()))
    for one, two in zip(grown, plain, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("kind", [Reversal, BoundedReversal])
def test_each_secret_has_its_own_lambda(kind: Any) -> None:
    x, codes, _, secret = setting()
    other = attribute("other", np.roll(np.asarray(secret.codes), 3).tolist())
    codes = {**codes, "other": torch.tensor(other.codes.astype(np.int64))}

    def pull(lam: float, lambdas: dict[str, float]) -> Tensor:
        torch.manual_seed(0)
        network = network_of(kind(6, [secret, other], lam, lambdas=lambdas), secret)
        network.weights["other"] = torch.ones(2)
        return body_gradient(network, network(batch_of(network, x, codes)).sum())

    first, second = pull(0.0, {"secret": 1.0}), pull(0.0, {"other": 1.0})
    assert first.abs().max() > 0 and not torch.allclose(first, second)
    torch.testing.assert_close(pull(2.0, {"other": 0.5}), 2 * first + 0.5 * second)
    torch.testing.assert_close(pull(1.0, {"secret": 1.0, "other": 1.0}), pull(1.0, {}))


def test_the_kernel_and_the_symbols_have_a_lambda_for_each_secret_too() -> None:
    x, codes, _, secret = setting()
    other = attribute("other", np.roll(np.asarray(secret.codes), 3).tolist())
    codes = {**codes, "other": torch.tensor(other.codes.astype(np.int64))}

    def loss(make: Any, lam: float, lambdas: dict[str, float]) -> Tensor:
        torch.manual_seed(0)
        network = network_of(make([secret, other], lam, lambdas=lambdas), secret)
        network.weights["other"] = torch.ones(2)
        network.body.activation = "softmax"
        total: Tensor = network(batch_of(network, x, codes)).sum()
        return total

    for make in (Independence, SymbolIndependence):
        first, second = loss(make, 0.0, {"secret": 1.0}), loss(make, 0.0, {"other": 1.0})
        torch.testing.assert_close(loss(make, 2.0, {"other": 0.5}), 2 * first + 0.5 * second)
        torch.testing.assert_close(loss(make, 1.0, {}), first + second)


def test_dropout_of_heads_repeats_with_the_training_and_is_off_where_it_is_judged() -> None:
    x, codes, task, secret = setting()
    torch.manual_seed(0)
    network = network_of(Task(6, task, HeadShape(50, 0.5)), secret)
    losses = [network(batch_of(network, x, codes)).sum().item() for _ in range(2)]
    assert losses[0] == losses[1]  # the same random numbers
    random = torch.Generator().manual_seed(3)
    other = network(network.batch(x, codes, 1.0, random)).sum()
    assert other.item() != losses[0]
    network.eval()
    quiet = [network(network.batch(x, codes, 1.0, random)).sum().item() for _ in range(2)]
    assert quiet[0] == quiet[1] != losses[0]
    state = torch.random.get_rng_state()
    network.train()
    network(batch_of(network, x, codes))
    assert torch.equal(state, torch.random.get_rng_state())  # nobody else's numbers are used
