"""The page to read first: what each part of Capelet promises to the next.

    files → Corpus → Split(defender, attacker, victims)
                        │ texts
          PrivateEncoder = text steps → encoder → vector steps
                        │ .release(texts)
          Release(vectors, guarantee, recipe)        all that an attacker may hold
                │                        │
          attack → guesses        utility · fairness · geometry
                └───────────┬────────────┘
                Findings + artefacts → Report

The values that flow (`Corpus`, `Split`, `Release`, `Findings`) are frozen; a room takes one and
returns the next. The Protocols below are what a new encoder or step must look like; that of an
attacker, `Family`, stands in `attacks.families` beside what it is given. They are structural:
nothing needs to inherit from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # this page names the types of other rooms, and imports none of them
    from capelet.privacy.guarantees import Guarantee

Vectors = npt.NDArray[np.floating[Any]]
Kind = Literal["texts", "vectors"]


class Progress(Protocol):
    """Called as long work goes on: `progress("encoding", 640, 10_000)`."""

    # By position only, so that every caller may name the three as it likes.
    def __call__(self, what: str, count: int, total: int, /) -> None: ...


def silent(what: str, count: int, total: int) -> None:
    """The progress of a caller who wants none."""


@runtime_checkable
class Encoder(Protocol):
    """Texts in, `(n, dimension)` float32 vectors out; the only place where a framework shows.

    `fingerprint` is a hash of everything that decides the vectors (weights, pooling, length limit,
    back-end): equal fingerprints mean equal vectors. Loading is lazy: the model is read at the
    first `encode`, `dimension` or `fingerprint`. An encoder whose rows depend on their own text
    alone, to the last bit, says so in its own class by `isolates_rows = True`; of any other a
    guarantee says that this was not tested.
    """

    @property
    def name(self) -> str: ...

    @property
    def backend(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors: ...

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which of the texts are longer than the encoder reads."""
        ...


def isolates_rows(item: object) -> bool:
    """Whether an encoder, or a step, says that its rows depend on themselves alone.

    Somebody else's class speaks for itself: what it inherits was said of other code.
    """
    if type(item).__module__.partition(".")[0] == __package__:
        return getattr(item, "isolates_rows", False) is True
    return vars(type(item)).get("isolates_rows") is True


class Step(Protocol):
    """One step of a private encoder before or after the encoder itself.

    It says what it `consumes` and `emits`, what it promises (`guarantee`; None for a step that adds
    no noise) and describes itself for the recipe. A step is called with a whole batch. One whose
    rows take few values, whatever comes in, says how many at most by `outcomes`.
    """

    consumes: Kind
    emits: Kind

    @property
    def guarantee(self) -> Guarantee | None: ...

    def describe(self) -> dict[str, Any]:
        """The step as it stands in a recipe: `{"step": "laplace", "epsilon": 8.0}`."""
        ...

    def __call__(self, batch: Any) -> Any: ...
