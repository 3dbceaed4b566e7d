"""What private training of a language model costs, as ratios to plain training of the same LSTM.

Claim: adversarial and triplet at most 1.10 ×, DP-SGD at most 1.6 × (the paper: 1.06, 1.80 and
16.44; Opacus 13 with ghost clipping and 18 with hooks). Steps of all methods take turns, so that a
busy machine slows all of them alike; the medians are compared.

    python benchmarks/language.py [--steps 12] [--opacus]

Embedding = hidden = 256, two layers, vocabulary 10,000, batches of 100 texts of 20 words, of which
every DP-SGD step clips each gradient and adds noise from the operating system. Texts are random
numbers: nothing here depends on what they say. Opacus wants its own LSTM, so it is measured on an
untied copy with the same sizes, and only where it is installed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from capelet.language.learners import PrivateNextWord, learner_of
from capelet.language.methods import Adversarial, Dpsgd, Plain, Triplet
from capelet.language.model import build
from capelet.language.schedule import Training
from capelet.language.vocabulary import Samples
from capelet.training.loop import Position

WORDS, WIDTH, LENGTH, BATCH, AUTHORS = 10_000, 256, 20, 100, 100
METHODS = {
    "none": Plain(),
    "adversarial": Adversarial(1.0),
    "triplet": Triplet(1.0),
    "triplet, second pass": Triplet(1.0, pairs="second"),
    "dpsgd": Dpsgd(1.0),
}
CLAIMS = {"adversarial": 1.10, "triplet": 1.10, "dpsgd": 1.6}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=12)
    options.add_argument("--opacus", action="store_true")
    options.add_argument("--kind", default="lstm")
    options.add_argument("--device", default="auto")
    chosen = options.parse_args()
    steps = {name: stepper(chosen.kind, method, chosen.device) for name, method in METHODS.items()}
    if chosen.opacus:
        steps["Opacus, hooks"] = opacus_stepper("hooks")
        steps["Opacus, ghost"] = opacus_stepper("ghost")
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(chosen.steps + 2):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if round_ >= 2:
                seconds[name].append(time.perf_counter() - began)
    plain = float(np.median(seconds["none"]))
    print(f"plain step of the {chosen.kind}: {1000 * plain:.0f} ms")
    ratios = {name: float(np.median(times)) / plain for name, times in seconds.items()}
    for name, ratio in ratios.items():
        claim = f"   (claim: at most {CLAIMS[name]:.2f})" if name in CLAIMS else ""
        print(f"{name:<24}{ratio:6.2f} ×{claim}")
    print(json.dumps({"plain_s": plain, "ratios": ratios}))


def random_samples() -> Samples:
    random = np.random.default_rng(0)
    tokens = random.integers(4, WORDS, size=(20 * BATCH, LENGTH + 1))
    tokens[:, 0] = 2
    authors = np.repeat(np.arange(AUTHORS), len(tokens) // AUTHORS)
    return Samples(tokens, authors, tuple(str(number) for number in range(AUTHORS)))


def stepper(kind: str, method: Any, device: str) -> Callable[[], None]:
    """One training step of a method, on a full batch each time."""
    samples = random_samples()
    network = build(kind, WORDS, WIDTH, layers=2, length=LENGTH)
    learner = learner_of(Training(method, batch=BATCH, device=device), network, samples)
    random = np.random.default_rng(1)

    def step() -> None:
        people = random.choice(AUTHORS, size=10, replace=False)
        rows = (people[:, None] * 20 + np.arange(10)).ravel()
        if isinstance(learner, PrivateNextWord):
            learner.noise.begin_step(0, learner.device)
        learner.step(rows, Position(0, 0, 0))

    return step


def opacus_stepper(mode: str) -> Callable[[], None]:
    import warnings

    from opacus import PrivacyEngine
    from opacus.layers import DPLSTM
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Untied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(WORDS, WIDTH)
            self.lstm = DPLSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
            self.out = nn.Linear(WIDTH, WORDS)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.out(self.lstm(self.embedding(tokens))[0])

    warnings.simplefilter("ignore")
    tokens = torch.from_numpy(random_samples().tokens)
    loader = DataLoader(TensorDataset(tokens), batch_size=BATCH)
    network = Untied()
    settings: dict[str, Any] = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
    settings |= {"poisson_sampling": False, "grad_sample_mode": mode}
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    criterion: Any = nn.CrossEntropyLoss(reduction="mean")
    engine = PrivacyEngine()
    batch = tokens[:BATCH]
    inputs, targets = batch[:, :-1].contiguous(), batch[:, 1:].flatten()
    if mode == "ghost":
        network, optimiser, criterion, _ = engine.make_private(
            module=network,
            optimizer=optimiser,
            data_loader=loader,
            criterion=criterion,
            **settings,
        )
    else:
        network, optimiser, _ = engine.make_private(
            module=network, optimizer=optimiser, data_loader=loader, **settings
        )

    def step() -> None:
        optimiser.zero_grad()
        scores = network(inputs).flatten(0, 1)
        # Ghost clipping must be told what is a sample: the shape of batch and time.
        shape = {"shape": (BATCH, LENGTH)} if mode == "ghost" else {}
        criterion(scores, targets, **shape).backward()
        optimiser.step()

    return step


if __name__ == "__main__":
    main()
