"""A private encoder for studies: its releases can be repeated, and promise nothing.

A release draws from the operating system, so "the same table twice" cannot hold for one. A study
draws the same distribution from a seed (`PrivateEncoder.study_release`); what it makes has the
status `none`, and neither `encode` nor a ledger takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from capelet.errors import CapeletError
from capelet.interfaces import Encoder, Progress, Step, Vectors, silent
from capelet.privacy.guarantees import Guarantee, as_seeded
from capelet.release.recipe import PrivateEncoder, Release


class SeededEncoder(PrivateEncoder):
    """The private encoder with seeded noise: its first, second … release are always the same ones.

    It works wherever a private encoder is measured. Releases are numbered, so two of them differ;
    whoever releases from several threads needs one for each, with a seed of its own. `purpose`
    keeps the noise of one use apart from that of another: what a map is trained on must not come
    again in what is attacked.
    """

    def __init__(self, *steps: str | Encoder | Step, seed: int, purpose: str = "release") -> None:
        super().__init__(*steps)
        self.seed, self.purpose = seed, purpose
        self._numbers = count()

    @classmethod
    def of(cls, private: PrivateEncoder, seed: int, purpose: str = "release") -> SeededEncoder:
        """The same steps, with noise from this seed."""
        return cls(*private.steps, seed=seed, purpose=purpose)

    @property
    def guarantee(self) -> Guarantee:
        return as_seeded(super().guarantee)

    @property
    def word_guarantee(self) -> Guarantee | None:
        words = super().word_guarantee
        return None if words is None else as_seeded(words)

    def release(self, inputs: Sequence[str] | Vectors, progress: Progress = silent) -> Release:
        """The next release from the seed."""
        plain = PrivateEncoder(*self.steps)
        draw = f"{self.purpose} {next(self._numbers)}"
        return plain.study_release(inputs, self.seed, progress, draw=draw)

    def with_steps(self, steps: Sequence[Step]) -> SeededEncoder:
        return SeededEncoder(*steps, seed=self.seed, purpose=self.purpose)

    def redrawing(self) -> SeededEncoder:
        """The same encoder with its first release behind it: what it draws next is the second."""
        again = self.with_steps(self.steps)
        next(again._numbers)
        return again

    def save(self, folder: Path | str, about: Any = None) -> Path:
        """Refused: a folder is for releases."""
        raise CapeletError(
            "an encoder with seeded noise promises nothing and is not saved; save the private "
            "encoder that it was made of"
        )


def seeded(private: PrivateEncoder, seed: int, purpose: str = "release") -> PrivateEncoder:
    """The encoder with noise from the seed where it draws any; else the encoder itself."""
    return SeededEncoder.of(private, seed, purpose) if private.draws else private
