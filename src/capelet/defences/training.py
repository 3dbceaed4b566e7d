"""The one training loop: every defence that learns by descent is a network and its terms.

Deterministic on a CPU given a seed; the noise in it is seeded, so nothing made here is a release.
It stops when the watched loss has not fallen for some epochs, keeps the best state, refuses a loss
that diverges, and takes up a killed training from its last checkpoint, with the same result.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from capelet.data.corpus import Rows
from capelet.data.labels import Attribute
from capelet.defences.noise import Twin
from capelet.defences.terms import Batch, Term, balanced
from capelet.errors import CapeletError
from capelet.files import write_whole
from capelet.interfaces import Progress, Vectors, silent
from capelet.release.maps import Layer, Map, affine
from capelet.training.networks import Front, Residual

if TYPE_CHECKING:
    from capelet.encoders.tuning import TopLayers

EVERY = 20.0
"""Seconds between two checkpoints."""
EXPLODED = 1e4
"""A loss this far above the first one has diverged."""
RUNAWAY = 10.0
"""So has a training that ends with a loss this many times that of blind guessing."""


class TrainingError(CapeletError):
    """The training went wrong: nothing of it is kept."""


@dataclass(frozen=True, eq=False)
class Part:
    """What a defence may see: the defender's vectors, its task and its secrets, and two halves.

    `fit` and `tune` are rows of `vectors`; the attributes' codes have one entry for each of them,
    and so have the texts, where there are any. `top` are the last layers of the encoder, where they
    may be trained along.
    """

    vectors: Vectors
    fit: Rows
    tune: Rows
    task: Attribute | None
    secrets: tuple[Attribute, ...]
    texts: Sequence[str] | None = None
    top: TopLayers | None = None

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    @property
    def targets(self) -> list[Attribute]:
        return [*self.secrets, *([self.task] if self.task is not None else [])]

    def digest(self) -> str:
        """A hash of everything that training sees."""
        found = hashlib.sha256(np.ascontiguousarray(self.vectors, dtype="<f4").tobytes())
        for item in self.targets:
            found.update(item.name.encode() + np.ascontiguousarray(item.codes, "<i8").tobytes())
        for rows in (self.fit, self.tune):
            found.update(np.ascontiguousarray(rows, "<i8").tobytes())
        return found.hexdigest()


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: batches of `batch`, Adam at `rate`, `patience` epochs without gain."""

    epochs: int = 60
    batch: int = 128
    rate: float = 1e-3
    patience: int | None = 5
    decay: float = 0.0
    cooling: bool = False
    seed: int = 0
    device: str = "auto"

    def place(self) -> torch.device:
        if self.device != "auto":
            return torch.device(self.device)
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Body(nn.Module):
    """The layers that will be released, behind a fixed scaling learnt on the rows to fit on."""

    def __init__(self, inner: nn.Module, activation: str = "none") -> None:
        super().__init__()
        self.inner, self.activation = inner, activation
        self.register_buffer("shift", torch.zeros(1))
        self.register_buffer("scale", torch.ones(1))

    def settle(self, x: Tensor) -> None:
        """Learn the scaling: of each coordinate or, so that angles stay, of all of them alike."""
        if isinstance(self.inner, Residual):
            self.scale = 1 / x.norm(dim=1).mean().clamp(min=1e-12).reshape(1)
            return
        spread = x.std(dim=0)
        alive = spread > 1e-6 * x.abs().max().clamp(min=1e-12)  # MiniLM has three dead coordinates
        self.shift = x.mean(dim=0)
        self.scale = torch.where(alive, 1 / spread.clamp(min=1e-12), torch.zeros_like(spread))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.inner((x - self.shift) * self.scale)
        if self.activation == "relu":
            return torch.relu(made)
        return torch.softmax(made, dim=1) if self.activation == "softmax" else made

    def frozen(self, width: int) -> Map:
        """What was learnt, for numpy."""
        scale = _numpy(self.scale) * np.ones(width, dtype=np.float32)
        first = affine(np.diag(scale), -_numpy(self.shift) * scale)
        chain = self.inner.bend if isinstance(self.inner, Residual) else self.inner
        linear = [item for item in chain.modules() if isinstance(item, nn.Linear)]
        layers = [
            Layer(
                _numpy(item.weight),
                _numpy(item.bias),
                self.activation if item is linear[-1] else "relu",
            )
            for item in linear
        ]
        if isinstance(self.inner, Residual):
            skip = affine(_numpy(self.inner.skip.weight), _numpy(self.inner.skip.bias))
            return Map((first, *layers), skip)
        # The scaling is folded into the first layer.
        joined = Layer(
            (layers[0].weight @ first.weight).astype(np.float32),
            (layers[0].weight @ first.bias + layers[0].bias).astype(np.float32),
            layers[0].activation,
        )
        return Map((joined, *layers[1:]))


class Network(nn.Module):
    """Noise, body, noise, and the terms that ask for something of what comes out.

    With a front the vectors are not given but made, from the numbers of the rows.
    """

    def __init__(
        self,
        body: Body,
        terms: Sequence[Term],
        before: Twin | None = None,
        after: Twin | None = None,
        front: Front | None = None,
    ) -> None:
        super().__init__()
        self.body, self.terms, self.front = body, nn.ModuleList(terms), front
        self.before, self.after = before, after
        self.weights: dict[str, Tensor] = {}

    def batch(
        self, x: Tensor, codes: Mapping[str, Tensor], share: float, random: torch.Generator
    ) -> Batch:
        made = x if self.front is None else self.front(x)
        noisy = made if self.before is None else self.before(made, random)
        features = self.body(noisy)
        if self.after is not None:
            features = self.after(features, random)
        rows = None if self.front is None else x
        return Batch(noisy, features, codes, share, random, rows)

    def forward(self, batch: Batch) -> Tensor:
        """The loss of each term; their sum is what is minimised."""
        return torch.stack([term(batch, self) for term in self.terms])


@dataclass(frozen=True, eq=False)
class Trained:
    """A frozen map, what its own adversaries reached on the held-back rows, and how it went."""

    map: Map
    joint: Mapping[str, float] = field(default_factory=dict)
    losses: tuple[float, ...] = ()
    seconds: float = 0.0


@dataclass(eq=False)
class _State:
    """What a checkpoint holds beside the network and its optimiser."""

    epoch: int = 0
    best: float = math.inf
    waited: int = 0
    losses: list[float] = field(default_factory=list)
    by_term: list[float] = field(default_factory=list)
    kept: dict[str, Tensor] = field(default_factory=dict)


def train(
    network: Network,
    part: Part,
    schedule: Schedule,
    checkpoint: Path | None = None,
    progress: Progress = silent,
) -> Trained:
    """Train and freeze; `checkpoint` is a file to resume from and to save to."""
    began = time.monotonic()
    device = schedule.place()
    random = torch.Generator(device).manual_seed(schedule.seed)
    data = _Data(part, device, network.front is not None)
    network.to(device)
    for item in part.targets:
        network.weights[item.name] = balanced(item, data.fit_codes[item.name])
    with torch.no_grad():
        network.body.settle(network.before(data.start, random) if network.before else data.start)
    optimiser = _optimiser(network, schedule)
    store = _Store(checkpoint, f"{part.digest()} {schedule} {device} {_told(network)}")
    state = store.load(network, optimiser, random) or _State()
    saved = time.monotonic()
    while state.epoch < schedule.epochs:
        try:
            _epoch(network, data, schedule, state, optimiser, random)
        except TrainingError:
            store.forget()  # it would only diverge again
            raise
        progress("training", state.epoch, schedule.epochs)
        if _finished(network, data, schedule, state, random):
            break
        if time.monotonic() - saved > EVERY:
            store.save(network, optimiser, random, state)
            saved = time.monotonic()
    progress("training", schedule.epochs, schedule.epochs)
    store.forget()
    _check_end(network, state)
    if state.kept:
        network.load_state_dict(state.kept)
    joint = _joint(network, part, data, random)
    frozen = network.body.cpu().frozen(part.width)
    return Trained(frozen, joint, tuple(state.losses), time.monotonic() - began)


def _optimiser(network: Network, schedule: Schedule) -> torch.optim.Adam:
    """Adam; a front goes at its own pace."""
    front = list(network.front.parameters()) if network.front is not None else []
    ours = {id(item) for item in front}
    others = [item for item in network.parameters() if id(item) not in ours]
    groups: list[dict[str, Any]] = [{"params": others, "pace": 1.0}]
    if network.front is not None:
        groups.append({"params": front, "pace": network.front.pace})
    for group in groups:
        group["lr"] = schedule.rate * group["pace"]
    return torch.optim.Adam(groups, eps=1e-7, weight_decay=schedule.decay)


def _told(network: Network) -> str:
    """The network and every number of its terms and its noise: λ and ε too, not only shapes."""
    asked = [*network.terms, network.before, network.after]
    numbers = [
        (type(item).__name__, key, value)
        for item in asked
        for key, value in sorted(vars(item).items() if item is not None else ())
        if isinstance(value, int | float | str) and key != "training"
    ]
    return f"{network} {numbers}"


class _Data:
    """The rows to fit on and to tune on, on the device: their vectors or, for a front, numbers."""

    def __init__(self, part: Part, device: torch.device, numbers: bool = False) -> None:
        every = torch.tensor(np.asarray(part.vectors, dtype=np.float32))
        held = torch.arange(len(every)) if numbers else every
        self.fit, self.tune = (held[rows].to(device) for rows in (part.fit, part.tune))
        self.start = every[part.fit].to(device) if numbers else self.fit
        codes = {item.name: torch.tensor(item.codes.astype(np.int64)) for item in part.targets}
        self.fit_codes = {name: held[part.fit].to(device) for name, held in codes.items()}
        self.tune_codes = {name: held[part.tune].to(device) for name, held in codes.items()}


def _epoch(
    network: Network,
    data: _Data,
    schedule: Schedule,
    state: _State,
    optimiser: torch.optim.Optimizer,
    random: torch.Generator,
) -> None:
    """One pass over the rows to fit on."""
    network.train()
    if schedule.cooling:
        for group in optimiser.param_groups:
            group["lr"] = schedule.rate * group["pace"] * (1.05 - state.epoch / schedule.epochs)
    order = torch.randperm(len(data.fit), generator=random, device=data.fit.device)
    total, steps = torch.zeros(len(network.terms), device=data.fit.device), 0
    for rows in torch.split(order, schedule.batch):
        if len(rows) < min(schedule.batch, len(order)) // 2:
            continue  # a scrap of a batch would weigh as much as a whole one
        codes = {name: held[rows] for name, held in data.fit_codes.items()}
        share = (state.epoch + steps * schedule.batch / len(order)) / schedule.epochs
        losses = network(network.batch(data.fit[rows], codes, share, random))
        optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        optimiser.step()
        total += losses.detach()
        steps += 1
    state.epoch += 1
    state.by_term = (total / max(steps, 1)).tolist()
    state.losses.append(sum(state.by_term))
    _check(state)


def _check(state: _State) -> None:
    first, last = state.losses[0], state.losses[-1]
    if not math.isfinite(last) or last > EXPLODED * max(abs(first), 1.0):
        raise TrainingError(
            f"the loss diverged in epoch {state.epoch} ({first:.3g} at first, {last:.3g} now); "
            "nothing was saved: give a smaller --lambda, or train longer with a smaller rate"
        )


def _check_end(network: Network, state: _State) -> None:
    """Reversal has no bottom: with a large λ its adversaries end worse than blind, outrun."""
    for term, loss in zip(network.terms, state.by_term, strict=bool(state.by_term)):
        blind = float(term.blind())  # type: ignore[operator]
        if loss > RUNAWAY * blind:
            raise TrainingError(
                f"the training ran away: its {type(term).__name__.lower()} loss ends at "
                f"{loss:.3g}, where blind guessing has {blind:.3g}; nothing was saved: give a "
                "smaller --lambda, or train longer with a smaller rate"
            )


def _finished(
    network: Network,
    data: _Data,
    schedule: Schedule,
    state: _State,
    random: torch.Generator,
) -> bool:
    """Whether the watched loss (the first term, on the held-back rows) has stopped falling."""
    if schedule.patience is None:
        return False
    network.eval()
    with torch.no_grad():
        batch = network.batch(data.tune, data.tune_codes, 1.0, random)
    first = network.terms[0]
    with torch.enable_grad():
        loss = float(first(batch, network).detach())
    if loss < state.best - 1e-5:
        state.best, state.waited = loss, 0
        state.kept = {name: held.clone() for name, held in network.state_dict().items()}
        return False
    state.waited += 1
    return state.waited >= schedule.patience


def _joint(network: Network, part: Part, data: _Data, random: torch.Generator) -> dict[str, float]:
    """Balanced accuracy of the defence's own adversaries on the held-back rows."""
    network.eval()
    reached: dict[str, float] = {}
    with torch.no_grad():
        features = network.batch(data.tune, data.tune_codes, 1.0, random).features
        for term in network.terms:
            for name, said in term.joint(features).items():  # type: ignore[operator]
                codes, guess = data.tune_codes[name].cpu(), said.argmax(dim=1).cpu()
                present = [code for code in range(said.shape[1]) if (codes == code).any()]
                hits = [float((guess[codes == code] == code).float().mean()) for code in present]
                reached[name] = sum(hits) / max(len(hits), 1)
    return reached


class _Store:
    """A checkpoint file: safetensors, with the numbers in its header."""

    def __init__(self, path: Path | None, what: str) -> None:
        self.path = path
        self.what = hashlib.sha256(what.encode()).hexdigest()

    def save(
        self,
        network: Network,
        optimiser: torch.optim.Optimizer,
        random: torch.Generator,
        state: _State,
    ) -> None:
        if self.path is None:
            return
        from safetensors.torch import save

        tensors = {f"network.{name}": held for name, held in network.state_dict().items()}
        tensors |= {f"kept.{name}": held for name, held in state.kept.items()}
        for place, parameter in enumerate(network.parameters()):
            for name, held in optimiser.state.get(parameter, {}).items():
                tensors[f"optimiser.{place}.{name}"] = torch.as_tensor(held)
        tensors["random"] = random.get_state()
        numbers = {
            "what": self.what,
            "epoch": state.epoch,
            "best": state.best,
            "waited": state.waited,
            "losses": state.losses,
            "by_term": state.by_term,
        }
        whole = {name: held.detach().cpu().contiguous().clone() for name, held in tensors.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, save(whole, {"state": json.dumps(numbers)}), mode=0o600)

    def load(
        self, network: Network, optimiser: torch.optim.Optimizer, random: torch.Generator
    ) -> _State | None:
        """The state of a training of the same data, settings and network; None otherwise."""
        if self.path is None or not self.path.is_file():
            return None
        from safetensors import SafetensorError, safe_open
        from safetensors.torch import load_file

        try:
            with safe_open(self.path, framework="pt") as opened:
                numbers = json.loads((opened.metadata() or {})["state"])
            tensors = load_file(self.path)
            if numbers["what"] != self.what:
                return None
        except (SafetensorError, OSError, KeyError, TypeError, ValueError):
            return None

        def under(prefix: str) -> dict[str, Any]:
            return {
                name.removeprefix(prefix): held
                for name, held in tensors.items()
                if name.startswith(prefix)
            }

        network.load_state_dict(under("network."))
        for place, parameter in enumerate(network.parameters()):
            held = under(f"optimiser.{place}.")
            if held:
                optimiser.state[parameter] = {
                    name: value if name == "step" else value.to(parameter.device)
                    for name, value in held.items()
                }
        random.set_state(tensors["random"])
        kept = {
            name: held.to(next(network.parameters()).device)
            for name, held in under("kept.").items()
        }
        del numbers["what"]
        return _State(**numbers, kept=kept)

    def forget(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _numpy(tensor: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float32)
