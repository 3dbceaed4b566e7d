"""Training a defence against a plain PyTorch loop of the same model, in one run.

    python benchmarks/training.py

10,000 vectors of 384 dimensions, one seed. Claims: every method under 60 s on two cores, and the
loop with its checkpoints, weights and stopping within 1.3 × of a plain loop over the same batches,
and a training with differential privacy within 1.6 × of plain steps on batches of the same size.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from capelet.data.labels import Attribute
from capelet.defences import METHODS, Part, Schedule, Settings, fit
from capelet.defences.fitting import train
from capelet.defences.network import Body, Network
from capelet.defences.private_training import DENSE
from capelet.defences.settings import TrainingPrivacy
from capelet.defences.terms import Task
from capelet.training.networks import dense
from tables import best_of, result, table, wanted

ROWS, WIDTH, EPOCHS = 10_000, 384, 20
LIMIT, RATIO, PRIVATE_RATIO = 60.0, 1.3, 1.6


def planted(rows: int) -> Part:
    """Vectors with a task of four classes and two secrets, one of them not linear."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, WIDTH)).astype(np.float32)
    task = x[:, :4].argmax(axis=1).astype(np.intp)
    linear = (x[:, 5] + 0.5 * random.normal(size=rows) > 0).astype(np.intp)
    round_ = (np.linalg.norm(x[:, 8:24], axis=1) > 4).astype(np.intp)
    order = random.permutation(rows)
    secrets = (Attribute("linear", linear, ("a", "b")), Attribute("round", round_, ("a", "b")))
    label = Attribute("task", task, ("a", "b", "c", "d"))
    words = random.zipf(1.3, size=(rows, 20)).clip(max=8000) + 20_000 * (task[:, None] + 1)
    texts = [" ".join(f"w{word}" for word in text) for text in words]  # `ae` learns from texts
    return Part(x, order[rows // 10 :], order[: rows // 10], label, secrets, texts)


def ours(part: Part, schedule: Schedule) -> None:
    torch.manual_seed(0)
    train(Network(Body(dense([WIDTH, 64, 64]), "relu"), [Task(64, part.task)]), part, schedule)


def plain(part: Part, schedule: Schedule) -> None:
    """The same layers, batches, optimiser and held-back loss, written down."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        dense([WIDTH, 64, 64]), torch.nn.ReLU(), dense([64, 200, len(part.task.classes)])
    )
    x, y = torch.tensor(part.vectors[part.fit]), torch.tensor(part.task.codes[part.fit])
    held, truth = torch.tensor(part.vectors[part.tune]), torch.tensor(part.task.codes[part.tune])
    x = (x - x.mean(dim=0)) / x.std(dim=0)
    optimiser = torch.optim.Adam(model.parameters(), schedule.rate, eps=1e-7)
    for _ in range(schedule.epochs):
        for rows in torch.split(torch.randperm(len(x)), schedule.batch):
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            float(torch.nn.functional.cross_entropy(model(held), truth))


def private(part: Part) -> None:
    """A map of the same layers by DP-SGD; what its noise must be was found before."""
    fit("fx", part, Settings(training=TrainingPrivacy(8.0)))


def plain_steps(part: Part) -> None:
    """As many plain steps of the same layers, on batches of the same size."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        dense([WIDTH, 64, 64]), torch.nn.ReLU(), dense([64, 200, len(part.task.classes)])
    )
    x, y = torch.tensor(part.vectors), torch.tensor(part.task.codes)
    optimiser = torch.optim.Adam(model.parameters(), DENSE.rate, eps=1e-7)
    for _ in range(DENSE.steps):
        rows = torch.randint(len(x), (round(DENSE.share * len(x)),))
        loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    part = planted(chosen.rows)
    schedule = Schedule(epochs=EPOCHS, patience=EPOCHS)
    loops = {
        "capelet": (lambda: ours(part, schedule), 1),
        "plain": (lambda: plain(part, schedule), 1),
    }
    times = best_of(loops, chosen.repeat)
    ratio = times["capelet"] / times["plain"]
    table([f"{EPOCHS} epochs", "seconds"], {name: [f"{s:.2f}"] for name, s in times.items()})
    wanted(f"training loop at {ratio:.2f} × a plain one: wanted {RATIO} × at most", ratio <= RATIO)
    private(part)  # once beforehand: the accountant remembers its noise
    steps = {"private": (lambda: private(part), 1), "plain": (lambda: plain_steps(part), 1)}
    times = best_of(steps, chosen.repeat)
    cost = times["private"] / times["plain"]
    table([f"{DENSE.steps} steps", "seconds"], {name: [f"{s:.2f}"] for name, s in times.items()})
    wanted(
        f"private training at {cost:.2f} × plain: wanted {PRIVATE_RATIO} × at most",
        cost <= PRIVATE_RATIO,
    )
    seconds: dict[str, float] = {}
    for name in METHODS:
        began = time.perf_counter()
        epsilon = 8.0 if "epsilon" in METHODS[name].needs else None
        fit(name, part, Settings(epsilon, keep="neighbours" if name == "gr+" else "task"))
        seconds[name] = round(time.perf_counter() - began, 2)
    table(["method", "seconds"], {name: [f"{s:.1f}"] for name, s in seconds.items()})
    wanted(f"every method: wanted {LIMIT:.0f} s at most", max(seconds.values()) <= LIMIT)
    ratios = {"ratio": round(ratio, 3), "private_ratio": round(cost, 3)}
    result("training", ["torch"], rows=chosen.rows, **ratios, seconds=seconds)


if __name__ == "__main__":
    main()
