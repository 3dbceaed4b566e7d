"""One choice of a device, one seeded fork of its random numbers, one kind of half precision.

Torch takes a second to import, so it is imported inside the functions: an encoder that runs by
ONNX asks here whether there is a GPU, and needs nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from capelet.errors import CapeletError, name_field

if TYPE_CHECKING:
    import torch

_is_processor_only: ContextVar[bool] = ContextVar("processor only", default=False)


@contextmanager
def on_processor() -> Iterator[None]:
    """Inside, there is no GPU for anybody who does not ask for it by name.

    A GPU adds in another order, and back-ends are chosen by whether there is one: a study must give
    the same numbers, and name the same encoder, with and without.
    """
    token = _is_processor_only.set(True)
    try:
        yield
    finally:
        _is_processor_only.reset(token)


def choose(name: str | None = "auto") -> torch.device:
    """The device of this name; `auto` or None is a GPU where there is one.

    >>> str(choose("cpu"))
    'cpu'
    """
    import torch

    if name is None or name == "auto":
        return torch.device("cuda" if gpu_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise CapeletError(f"there is no device {name!r}; give auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CapeletError(f"there is no GPU on this machine; use {name_field('device', 'cpu')}")
    return device


def gpu_available() -> bool:
    """Whether torch can use a GPU; asked of torch, slow to import, only where a driver shows."""
    if _is_processor_only.get():
        return False
    # What the drivers of NVIDIA, of WSL and of AMD leave in the file system.
    signs = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg", "/dev/kfd")
    if "torch" not in sys.modules and os.name == "posix" and not any(map(os.path.exists, signs)):
        return False
    import torch

    return torch.cuda.is_available()


@contextmanager
def seeded_fork(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Inside, torch draws from this seed; afterwards the caller's random numbers go on as before.

    Without a device only the CPU's numbers are restored: enough to draw first weights, which are
    always drawn there and moved afterwards.
    """
    import torch

    # To fork a GPU's numbers would start the GPU.
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        yield


def half_precision(device: torch.device) -> AbstractContextManager[None]:
    """bfloat16 on a GPU; on a CPU it can be missing or slow, so nothing changes there."""
    import torch

    return torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda")


def generators(device: torch.device) -> dict[str, torch.Generator]:
    """Torch's own random numbers on the CPU and on this device, to save and to restore."""
    import torch

    streams = {"cpu": torch.default_generator}
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        streams["cuda"] = torch.cuda.default_generators[device.index or 0]
    return streams
