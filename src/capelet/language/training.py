"""One training loop for language models, with four methods and checkpoints that resume exactly.

Nothing random is carried from step to step: the batches of an epoch, the prefixes of a step and
seeded noise are functions of (seed, epoch) or (seed, step). A run that was interrupted therefore
goes on from its last whole epoch as if nothing had happened.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from capelet.errors import CapeletError, DataError, OutputError, did_you_mean
from capelet.files import write_whole
from capelet.interfaces import Progress, silent
from capelet.language.dpsgd import Noise, add_noise, clipped_sum
from capelet.language.model import Network, Scorer, device_of, state_of
from capelet.language.regularisers import (
    POSITIONS,
    Discriminator,
    paired_triplet,
    states_at,
    to_uniform,
    triplet,
)
from capelet.language.vocabulary import PAD, Codes, Samples, Tokens

BATCHINGS = ("uniform", "author", "grouped")


@dataclass(frozen=True)
class Plain:
    """No privacy: the loss of the language model alone."""

    name: str = "none"


@dataclass(frozen=True)
class Adversarial:
    """A discriminator guesses the author from a state; the model makes its guess uniform."""

    strength: float = 1.0
    hidden: int = 1000
    position: str = "random"
    rate: float = 1e-3
    name: str = "adversarial"


@dataclass(frozen=True)
class Triplet:
    """States of different authors are pulled together, those of one author pushed apart.

    `pairs` are those inside the `batch`, or of the batch with a `second` one (the paper's form,
    which costs a second forward pass).
    """

    strength: float = 1.0
    pairs: str = "batch"
    position: str = "random"
    name: str = "triplet"


@dataclass(frozen=True)
class Dpsgd:
    """Clipped, noisy gradient sums of Poisson samples: differential privacy for each sample.

    `unit` is `record`. A guarantee for all samples of an author is refused, since it would need
    clipping per author. With `seed_noise` the noise can be repeated, and nothing is guaranteed.
    """

    noise_multiplier: float
    clip: float = 1.0
    seed_noise: int | None = None
    unit: str = "record"
    name: str = "dpsgd"

    def __post_init__(self) -> None:
        if self.unit != "record":
            raise CapeletError(
                f"DP-SGD here protects one record (one sample), not one {self.unit}; give each "
                "author one sample, or take unit 'record' and say that authors are not covered"
            )
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0):
            raise CapeletError("noise_multiplier must be a finite number, at least 0")
        if not (math.isfinite(self.clip) and self.clip > 0):
            raise CapeletError("clip must be a finite number above 0")


Method = Plain | Adversarial | Triplet | Dpsgd
METHODS: dict[str, type[Any]] = {
    "none": Plain,
    "adversarial": Adversarial,
    "triplet": Triplet,
    "dpsgd": Dpsgd,
}


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network with one row of history per epoch."""

    network: Network
    history: tuple[dict[str, float], ...]
    steps: int


@dataclass(frozen=True)
class Training:
    """How to train: method, epochs, batches, rate, seed and device.

    `batching`: `uniform` mixes authors, `author` fills a batch from one author (the paper's), and
    `grouped` holds `per_author` samples of each of several authors, so that pairs of both kinds are
    in it. DP-SGD draws Poisson samples instead. `keep` is `best` (by validation perplexity) or
    `last`; DP-SGD always keeps the last, since choosing is not covered by its ε.
    """

    method: Method = field(default_factory=Plain)
    epochs: int = 10
    batch: int = 100
    rate: float = 1e-3
    batching: str = "grouped"
    per_author: int = 10
    seed: int = 0
    device: str = "auto"
    keep: str = "best"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "per_author"):
            if getattr(self, name) < 1:
                raise CapeletError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise CapeletError(f"rate is {self.rate:g}; it must be a finite number above 0")
        strength = getattr(self.method, "strength", 0.0)
        if not (math.isfinite(strength) and strength >= 0):
            raise CapeletError(f"strength is {strength:g}; it must be a finite number, at least 0")
        if self.batching not in BATCHINGS:
            raise CapeletError(
                f"there is no batching {self.batching!r}; {did_you_mean(self.batching, BATCHINGS)}"
            )
        position = getattr(self.method, "position", "last")
        if position not in POSITIONS:
            raise CapeletError(
                f"there is no position {position!r}; {did_you_mean(position, POSITIONS)}"
            )

    def fit(
        self,
        network: Network,
        samples: Samples,
        validation: Tokens | None = None,
        *,
        checkpoint: Path | None = None,
        progress: Progress = silent,
        watch: Callable[[int, Network], None] | None = None,
        told: Callable[[dict[str, float]], None] | None = None,
        allow_single: bool = False,
    ) -> Trained:
        """Train the network in place; `watch(step, network)` sees every step, `told` every epoch.

        With a `checkpoint` file, each epoch is kept there; a run that finds one goes on from it.
        `allow_single` is for authors of whom a division left one sample here.
        """
        check_authors(samples.authors, self.method, allow_single)
        run = _Run(self, network, samples)
        if checkpoint is not None and checkpoint.is_file():
            run.load(checkpoint)
        total = self.epochs * run.steps_per_epoch
        while run.epoch < self.epochs:
            began, spent = time.perf_counter(), 0.0
            for batch in run.batches():
                spent += run.step(batch)
                progress("training", run.steps, total)
                if watch is not None:
                    watch(run.steps, network)
            run.end_epoch(validation, spent, time.perf_counter() - began)
            if told is not None:
                told(run.history[-1])
            if checkpoint is not None:
                run.save(checkpoint)
        if run.best is not None and self.keep == "best" and not isinstance(self.method, Dpsgd):
            network.load_state_dict(run.best)
        return Trained(network, tuple(run.history), run.steps)

    def fingerprint(self, network: Network, samples: Samples) -> str:
        """What must agree before a checkpoint may be continued; the number of epochs may grow."""
        settings = {**asdict(replace(self, epochs=1)), "network": network.kind, **network.sizes}
        settings["data"] = int(np.bitwise_xor.reduce(_hashes(samples)))
        return json.dumps(settings, sort_keys=True)


def check_authors(authors: Codes, method: Method, allow_single: bool = False) -> None:
    """Refuse authors that a regulariser can learn nothing from."""
    if not isinstance(method, Adversarial | Triplet):
        return
    counts = np.bincount(authors)
    present = counts[counts > 0]
    if len(present) < 2:
        raise DataError(
            f"the method {method.name!r} hides authors from each other and needs at least two; "
            "there is one"
        )
    if (present < 2).any() and not allow_single:
        raise DataError(
            f"{int((present < 2).sum())} of {len(present)} authors have only one sample, and "
            f"{method.name!r} needs two of each; leave them out, or train with 'none' or 'dpsgd'"
        )


def batches_of(
    authors: Codes, batching: str, size: int, per_author: int, seed: int, epoch: int
) -> Iterator[Codes]:
    """The row numbers of an epoch's batches; every row is in exactly one."""
    random = np.random.default_rng([seed, epoch, 0xBA])
    order = random.permutation(len(authors))
    if batching != "uniform":
        piece = size if batching == "author" else min(per_author, size)
        by_author = order[np.argsort(authors[order], kind="stable")]
        edges = np.flatnonzero(np.diff(authors[by_author])) + 1
        pieces = [
            rows[start : start + piece]
            for rows in np.split(by_author, edges)
            for start in range(0, len(rows), piece)
        ]
        shuffled = [pieces[i] for i in random.permutation(len(pieces))]
        if batching == "author":
            yield from shuffled
            return
        order = np.concatenate(shuffled)
    for start in range(0, len(order), size):
        yield order[start : start + size]


class _Run:
    """The state of a training: network, optimisers, where it is, and what it has seen."""

    def __init__(self, plan: Training, network: Network, samples: Samples) -> None:
        self.plan, self.method, self.network, self.samples = plan, plan.method, network, samples
        self.device = device_of(plan.device)
        network.to(self.device).train()
        self.tokens = torch.from_numpy(samples.tokens).to(self.device)
        self.authors = torch.from_numpy(samples.authors.astype(np.int64)).to(self.device)
        self.optimiser = torch.optim.Adam(network.parameters(), lr=plan.rate)
        self.discriminator, self.other_optimiser = self._discriminator()
        self.noise = Noise(self.method.seed_noise) if isinstance(self.method, Dpsgd) else None
        self.epoch = self.steps = 0
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Tensor] | None = None
        self.best_perplexity = math.inf

    def _discriminator(self) -> tuple[nn.Module | None, torch.optim.Optimizer | None]:
        if not isinstance(self.method, Adversarial):
            return None, None
        width, people = self.network.sizes["width"], len(self.samples.names)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.plan.seed)
            guesser = Discriminator(width, people, self.method.hidden).to(self.device)
        return guesser, torch.optim.Adam(guesser.parameters(), lr=self.method.rate)

    # -- batches

    @property
    def steps_per_epoch(self) -> int:
        if self.noise is not None or self.plan.batching != "author":
            return math.ceil(len(self.samples) / self.plan.batch)
        counts = np.bincount(self.samples.authors)
        return int(np.ceil(counts[counts > 0] / self.plan.batch).sum())

    def batches(self) -> Iterator[Codes]:
        if self.noise is None:
            plan = self.plan
            authors = self.samples.authors
            yield from batches_of(
                authors, plan.batching, plan.batch, plan.per_author, plan.seed, self.epoch
            )
            return
        for _ in range(self.steps_per_epoch):
            self.noise.step(self.steps, self.device)
            yield self.noise.poisson(
                len(self.samples), min(1.0, self.plan.batch / len(self.samples))
            )

    # -- steps

    def step(self, rows: Codes) -> Any:
        """One update; the summed loss of its words, as a tensor that need not be waited for."""
        self.steps += 1
        index = torch.from_numpy(rows).to(self.device)
        tokens, authors = self.tokens[index], self.authors[index]
        if self.noise is not None:
            return self._private_step(tokens)
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        hidden = self.network.hidden(inputs)
        scores = self.network.scores(hidden)
        loss = functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=PAD)
        penalty, states = self._penalty(hidden, tokens, authors)
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss + penalty)
        self.optimiser.step()
        if self.discriminator is not None and self.other_optimiser is not None:
            self.other_optimiser.zero_grad(set_to_none=True)
            guesses = self.discriminator(states.detach())
            torch.autograd.backward(functional.cross_entropy(guesses, authors))
            self.other_optimiser.step()
        return loss.detach()

    def _penalty(
        self, hidden: Tensor, tokens: Tensor, authors: Tensor
    ) -> tuple[Tensor | float, Tensor]:
        if not isinstance(self.method, Adversarial | Triplet):
            return 0.0, hidden
        random = torch.Generator().manual_seed(hash((self.plan.seed, self.steps)) % 2**62)
        states = states_at(hidden, tokens, self.method.position, random)
        if self.discriminator is not None:
            return self.method.strength * to_uniform(self.discriminator(states)), states
        if isinstance(self.method, Triplet) and self.method.pairs == "second":
            drawn = torch.randint(len(self.tokens), (len(tokens),), generator=random)
            # Half of the second batch is by the same authors, or pairs of them would be rare.
            drawn = drawn.to(self.device)
            drawn[::2] = self._same_author(authors[::2], random)
            others = self.network.hidden(self.tokens[drawn][:, :-1])
            other_states = states_at(others, self.tokens[drawn], self.method.position, random)
            apart = paired_triplet(states, other_states, authors, self.authors[drawn])
            return self.method.strength * apart, states
        return self.method.strength * triplet(states, authors), states

    def _same_author(self, authors: Tensor, random: torch.Generator) -> Tensor:
        order = torch.argsort(self.authors, stable=True)
        counts = torch.bincount(self.authors)
        starts = torch.cumsum(counts, 0) - counts
        share = torch.rand(len(authors), generator=random).to(self.device)
        return order[starts[authors] + (share * counts[authors]).long()]

    def _private_step(self, tokens: Tensor) -> float:
        assert self.noise is not None and isinstance(self.method, Dpsgd)
        clipped_sum(self.network, tokens, self.method.clip)
        deviation = self.method.noise_multiplier * self.method.clip
        expected = min(self.plan.batch, len(self.samples))
        add_noise(self.network, deviation, expected, self.noise)
        self.optimiser.step()
        # The loss of a Poisson sample is not part of what DP-SGD covers, so none is told.
        return math.nan

    # -- epochs

    def end_epoch(self, validation: Tokens | None, loss: Any, seconds: float) -> None:
        self.epoch += 1
        mean = float(loss) / self.steps_per_epoch
        row = {"epoch": self.epoch, "loss": mean, "seconds": round(seconds, 3)}
        if validation is not None and len(validation):
            row["perplexity"] = Scorer(self.network, str(self.device)).perplexity(validation)
            self.network.train()
            if row["perplexity"] < self.best_perplexity:
                self.best_perplexity, self.best = row["perplexity"], state_of(self.network)
        self.history.append(row)

    def save(self, path: Path) -> None:
        from safetensors.torch import save

        tensors = {f"network.{k}": v for k, v in state_of(self.network).items()}
        tensors |= {f"best.{k}": v for k, v in (self.best or {}).items()}
        for name, optimiser in self._optimisers().items():
            for place, state in optimiser.state_dict()["state"].items():
                tensors |= {f"{name}.{place}.{k}": v.cpu() for k, v in state.items()}
        if self.discriminator is not None:
            tensors |= {f"guesser.{k}": v for k, v in state_of(self.discriminator).items()}
        about = {
            "fingerprint": self.plan.fingerprint(self.network, self.samples),
            "epoch": self.epoch,
            "steps": self.steps,
            "history": self.history,
        }
        write_whole(path, save(tensors, {"capelet": json.dumps(about)}), mode=0o600)

    def load(self, path: Path) -> None:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="pt") as stream:
                about = json.loads((stream.metadata() or {})["capelet"])
                tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, json.JSONDecodeError, OSError):
            raise OutputError(
                f"{str(path)!r} is not a checkpoint; remove it to train from the start"
            ) from None
        if about["fingerprint"] != self.plan.fingerprint(self.network, self.samples):
            raise OutputError(
                f"{str(path)!r} is the checkpoint of a training with other settings or data; "
                "give the same ones to go on, or remove it to train from the start"
            )
        if about["epoch"] > self.plan.epochs:
            # Its steps are taken, so a smaller ε for fewer of them would be false.
            raise OutputError(
                f"{str(path)!r} holds {about['epoch']} epochs already, and {self.plan.epochs} were "
                "asked for; ask for as many or more, or remove it to train from the start"
            )
        self.epoch, self.steps, self.history = about["epoch"], about["steps"], about["history"]
        known = [row["perplexity"] for row in self.history if row.get("perplexity") is not None]
        self.best_perplexity = min(known, default=math.inf)
        self.network.load_state_dict(_under(tensors, "network"))
        self.best = _under(tensors, "best") or None
        if self.discriminator is not None:
            self.discriminator.load_state_dict(_under(tensors, "guesser"))
        for name, optimiser in self._optimisers().items():
            whole = optimiser.state_dict()
            whole["state"] = {}
            for key, value in _under(tensors, name).items():
                place, _, what = key.partition(".")
                whole["state"].setdefault(int(place), {})[what] = value
            optimiser.load_state_dict(whole)

    def _optimisers(self) -> dict[str, torch.optim.Optimizer]:
        both = {"optimiser": self.optimiser, "other": self.other_optimiser}
        return {name: item for name, item in both.items() if item is not None}


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(f"{prefix}."): value
        for name, value in tensors.items()
        if name.startswith(f"{prefix}.")
    }


def _hashes(samples: Samples) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """One number per row that depends on its words, its author and its place."""
    powers = np.cumprod(np.full(samples.tokens.shape[1], 0x9E3779B97F4A7C15, dtype=np.uint64))
    mixed = samples.tokens.astype(np.uint64) @ powers + samples.authors.astype(np.uint64)
    odd = (2 * np.arange(len(mixed)) + 1).astype(np.uint64)
    return np.asarray(mixed * odd, dtype=np.uint64)
