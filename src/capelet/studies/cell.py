"""A cell: one split of one combination, known by what goes into it, measured by a pure function.

Its key is the hash of everything that its numbers depend on: the corpus by its content, the encoder
by its fingerprint, settings, split, seed, attackers, and the version of its kind of measurement.
Equal keys mean equal findings, so a cell that is in a store is never measured again, and it does
not matter which process or machine measured it. Where the data lie is not part of the key.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from capelet.errors import CapeletError, describe_fault

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from capelet.data.corpus import Rows
    from capelet.findings import Findings
    from capelet.findings.metrics import Codes
    from capelet.studies.sources import Source

# Names under which keys were made when the first cells were stored; what they mean has not changed.
_STABLE_SPLITS = {"balanced": "auto", "auto": "by author, else random"}
_STABLE_NAMES = {"derive": "derived", "tune_layers": "layers", "word_dropout": "mu"}


@dataclass(frozen=True)
class Cell:
    """What is to be measured, in plain values; `sources` says where each corpus is read from."""

    kind: str
    version: int
    inputs: Mapping[str, Any]
    sources: Mapping[str, Source] = field(compare=False)

    @cached_property
    def key(self) -> str:
        """The SHA-256 of the canonical JSON of all that the findings depend on."""
        return hashlib.sha256(canonical(self.identity).encode()).hexdigest()

    @property
    def identity(self) -> dict[str, Any]:
        """What the key is made of, under names that outlast a renaming of a setting."""
        inputs = {_stable_name(name, item): item for name, item in self.inputs.items()}
        if "split" in inputs:
            inputs["split"] = _STABLE_SPLITS.get(inputs["split"], inputs["split"])
        return {"kind": self.kind, "version": self.version, "inputs": inputs}

    @property
    def seed(self) -> int:
        return int(self.inputs["seed"])


@dataclass(frozen=True, eq=False)
class VictimGuesses:
    """What the strongest attacker, or the task's probe, said of each victim of one target.

    `rows` and `units` number rows of the corpus and persons in it: with the texts at hand they name
    people, so whoever keeps them replaces them by pseudonyms first.
    """

    kind: str
    target: str
    rows: Rows
    units: Codes
    truth: npt.NDArray[np.int16]
    guess: npt.NDArray[np.int16]


@dataclass(frozen=True, eq=False)
class Measurement:
    """What a cell yields: findings that show nobody, and each victim's guess, by row number."""

    findings: Findings
    guesses: tuple[VictimGuesses, ...] = ()


@dataclass(frozen=True, eq=False)
class Outcome:
    """How the work on a cell ended: a measurement or, in one sentence, why there is none."""

    measurement: Measurement | None
    seconds: float
    reason: str | None = None


@dataclass(frozen=True)
class Encoding:
    """Texts of a corpus to be encoded into the cache, before any cell asks for their vectors."""

    source: Source
    rows: int | None
    encoder: str
    start: int
    stop: int


def _stable_name(name: str, value: Any) -> str:
    if name == "adversary_weight":
        return "lambdas" if isinstance(value, Mapping) else "lam"
    return _STABLE_NAMES.get(name, name)


def canonical(value: Any) -> str:
    """JSON with one spelling for equal values.

    >>> canonical({"b": 1.0, "a": [1]}) == canonical({"a": (1,), "b": 1})
    True
    """
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    # TOML tells 1 from 1.0, and no measurement does.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def compute(task: Cell | Encoding) -> Outcome:
    """Measure a cell, or fill the cache; whatever goes wrong becomes a sentence.

    Only the sentences of our own errors are kept: others may quote a text.
    """
    start = time.perf_counter()
    measurement, reason = None, None
    try:
        with warnings.catch_warnings():
            # Of empty classes at small sizes: such values are no numbers, and left out by their
            # name; hundreds of cells would say so hundreds of times.
            warnings.simplefilter("ignore", RuntimeWarning)
            measurement = _compute(task)
    except CapeletError as error:
        reason = error.spell("page")
    except MemoryError:
        reason = "the memory was not enough"
    except Exception as error:
        reason = f"a fault of Capelet: {describe_fault(error)}"
    return Outcome(measurement, time.perf_counter() - start, reason)


def _compute(task: Cell | Encoding) -> Measurement | None:
    import torch

    from capelet.numerics import one_thread
    from capelet.studies.kinds import KINDS
    from capelet.studies.sources import encode_rows
    from capelet.training.device import on_processor

    torch.set_num_threads(1)
    # Which device there is must not change a cell's numbers.
    with one_thread(), on_processor():
        if isinstance(task, Encoding):
            encode_rows(task)
            return None
        return KINDS[task.kind].measure(task)
