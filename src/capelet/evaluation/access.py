"""What attackers may use of a release beside the vectors that it gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np

from capelet.attacks.attribute import MOST_DRAWS
from capelet.attacks.outcomes import countable
from capelet.data.corpus import Rows
from capelet.evaluation.adaptive import Insider
from capelet.interfaces import Vectors
from capelet.release import PrivateEncoder
from capelet.release.seeded import SeededEncoder
from capelet.release.steps import draws

# Draws of each of the attacker's texts where words alone are noise: every one is encoded anew.
MOST_TEXT_DRAWS = 4


class Redraw:
    """Releases rows of a corpus once more, through the very encoder that is attacked."""

    def __init__(self, private: PrivateEncoder, inputs: Any, lock: Lock | None = None) -> None:
        self._private, self._inputs = private, inputs
        # Seeds run in parallel, and an encoder's cache is one file: who shares it shares a lock.
        self._lock = lock or Lock()
        is_text_noise = {step.consumes == "texts" for step in private.steps if draws(step)}
        self.most = MOST_TEXT_DRAWS if is_text_noise == {True} else MOST_DRAWS

    def afresh(self) -> Redraw:
        """The same redraws from the first on, for whoever must not depend on what others drew.

        Only noise from a seed comes in an order; and no finding may hang on what else was asked.
        """
        private = self._private
        if isinstance(private, SeededEncoder):
            private = private.redrawing()
        return Redraw(private, self._inputs, self._lock)

    def __call__(self, rows: Rows) -> Vectors:
        inputs = self._inputs
        own = inputs[rows] if isinstance(inputs, np.ndarray) else [inputs[row] for row in rows]
        with self._lock:
            return self._private.release(own).vectors


@dataclass(frozen=True, eq=False)
class Access:
    """One split's: further draws of own texts where there is noise, and what insiders hold.

    `outcomes` is how many values a released row can take, where they can be counted: known of a
    recipe, never guessed from what was released.
    """

    redraw: Redraw | None = None
    insider: Insider | None = None
    outcomes: int | None = None


NO_ACCESS = Access()


def access_of(encoders: Sequence[PrivateEncoder], inputs: Any, raw: Vectors | None) -> list[Access]:
    """What attackers of each split's release may use beside its vectors.

    Noise can be drawn again by everyone; `raw` are the vectors that insiders hold, None for none.
    Nobody is an insider of an unprotected release.
    """
    locks: dict[int, Lock] = {}
    redraws = {
        id(item): Redraw(item, inputs, locks.setdefault(id(item.encoder), Lock()))
        for item in encoders
        if item.draws
    }
    return [
        Access(
            redraws.get(id(encoder)),
            Insider.of(encoder, raw) if raw is not None and encoder.protects else None,
            countable(encoder.outcomes),
        )
        for encoder in encoders
    ]
