"""One store of checkpoints: a safetensors file with JSON in its header, whole or not there.

A checkpoint holds what was learnt from private texts, so only its owner may read it. It says of
which training it is by a hash of all settings and all data. In the cache that hash is also its
name: trainings that differ in anything, be it λ alone, may run side by side.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from capelet.errors import OutputError
from capelet.files import private_folder, sweep, write_whole

# Seconds between two checkpoints in the cache: a crash costs no more than that.
INTERVAL = 20.0

_HEADER = "capelet"


@dataclass(frozen=True, eq=False)
class Parts:
    """Everything of a training that changes while it runs; what is missing here cannot resume."""

    modules: Mapping[str, nn.Module]
    optimisers: Mapping[str, torch.optim.Optimizer] = field(default_factory=dict)
    generators: Mapping[str, torch.Generator | np.random.Generator] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What lies beside the parts: the numbers of the loop, and the best state so far."""

    numbers: dict[str, Any]
    best: dict[str, Tensor]


def identity_of(*settings: object) -> str:
    """A hash of everything that decides a training.

    >>> identity_of("gr", 1.0) == identity_of("gr", 1.0), identity_of("gr", 1.0) == identity_of(
    ...     "gr", 2.0
    ... )
    (True, False)
    """
    # Each setting on its own line of JSON, so that ("ab", "c") is not ("a", "bc").
    lines = "\n".join(json.dumps(str(item)) for item in settings)
    return hashlib.sha256(lines.encode()).hexdigest()


@dataclass(frozen=True)
class Store:
    """One file for the checkpoints of one training.

    In a folder of the cache (`in_folder`) a file that cannot be used is passed over: nobody asked
    for it by name. At a place that the user chose (`at`) it is refused, for to begin anew would
    throw away work, and for DP-SGD the steps already taken would be missing from ε.
    """

    path: Path
    identity: str
    interval: float = 0.0
    refuses: bool = True

    @classmethod
    def in_folder(cls, folder: Path, label: str, *settings: object) -> Store:
        """A file in a folder of the cache, named after everything that decides the training."""
        identity = identity_of(label, *settings)
        path = folder / f"{label}-{identity[:32]}.safetensors"
        return cls(path, identity, INTERVAL, refuses=False)

    @classmethod
    def at(cls, path: Path, *settings: object) -> Store:
        """The file at this place, written after every epoch."""
        return cls(path, identity_of(*settings))

    def save(self, parts: Parts, checkpoint: Checkpoint) -> None:
        """Write the file, readable by its owner only."""
        from safetensors.torch import save

        tensors = {f"best.{name}": value for name, value in checkpoint.best.items()}
        for name, module in parts.modules.items():
            tensors |= {f"module.{name}.{key}": v for key, v in module.state_dict().items()}
        for name, optimiser in parts.optimisers.items():
            for place, state in optimiser.state_dict()["state"].items():
                for key, value in state.items():
                    tensors[f"optimiser.{name}.{place}.{key}"] = torch.as_tensor(value)
        random: dict[str, Any] = {}
        for name, generator in parts.generators.items():
            if isinstance(generator, torch.Generator):
                tensors[f"random.{name}"] = generator.get_state()
            else:
                random[name] = generator.bit_generator.state
        header = {"identity": self.identity, "numbers": checkpoint.numbers, "random": random}
        # Cloned: safetensors refuses tensors that share memory, as tied weights do.
        content = {key: v.detach().cpu().contiguous().clone() for key, v in tensors.items()}
        if not self.path.parent.exists():
            private_folder(self.path.parent)
        write_whole(self.path, save(content, {_HEADER: json.dumps(header)}), mode=0o600)

    def load(self, parts: Parts) -> Checkpoint | None:
        """Put the parts back as they were; None where there is nothing to resume from."""
        if not self.path.is_file():
            return None
        try:
            header, tensors = _read(self.path)
        except ValueError:
            if not self.refuses:
                return None
            raise OutputError(
                f"{str(self.path)!r} is not a checkpoint; remove it to train from the start"
            ) from None
        if header["identity"] != self.identity:
            if not self.refuses:
                return None
            raise OutputError(
                f"{str(self.path)!r} is the checkpoint of a training with other settings or data; "
                "give the same ones to go on, or remove it to train from the start"
            )
        _restore(parts, tensors, header["random"])
        return Checkpoint(header["numbers"], _under(tensors, "best."))

    def forget(self) -> None:
        """Remove the file, and what a kill left of one."""
        self.path.unlink(missing_ok=True)
        sweep(self.path.parent)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors; a ValueError where the file is no checkpoint."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as stream:
            header = json.loads((stream.metadata() or {})[_HEADER])
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(header, dict) or {"identity", "numbers", "random"} - header.keys():
        raise ValueError("the header lacks entries")
    return header, tensors


def _restore(parts: Parts, tensors: Mapping[str, Tensor], random: Mapping[str, Any]) -> None:
    for name, module in parts.modules.items():
        module.load_state_dict(_under(tensors, f"module.{name}."))
    for name, optimiser in parts.optimisers.items():
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in _under(tensors, f"optimiser.{name}.").items():
            place, _, entry = key.partition(".")
            state.setdefault(int(place), {})[entry] = value
        # Rates are not saved: learners set them from the position of the step.
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
    # The same draws must follow as without a break, or a resumed training would be another one.
    for name, generator in parts.generators.items():
        if isinstance(generator, torch.Generator):
            generator.set_state(tensors[f"random.{name}"])
        else:
            generator.bit_generator.state = random[name]


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
