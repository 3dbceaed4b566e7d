"""Encoders with weights of their own, which travel inside the folder of a private encoder.

A recipe names such an encoder `./encoder`: the folder beside it. There are two: an auto-encoder,
and a transformer whose last layers were trained along with a map.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from capelet.encoders.autoencoder import CARD, AutoEncoder
from capelet.encoders.cache import CachedEncoder
from capelet.encoders.folders import check_folder, model_files
from capelet.encoders.transformer import TransformerEncoder
from capelet.errors import EncoderError
from capelet.interfaces import Encoder

OWN = "./encoder"
"""The name of an encoder that lies beside its recipe."""


class TunedEncoder(TransformerEncoder):
    """A transformer in a folder of its own, which goes wherever its private encoder is saved."""

    def __init__(self, folder: Path, backend: str = "auto") -> None:
        super().__init__(OWN, backend)
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self._requested)

    def place(self) -> Path:
        check_folder(self.folder)
        return self.folder

    def save(self, folder: Path) -> None:
        """Copy the model to that folder."""
        for path in model_files(self.folder):
            target = folder / path.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not (target.exists() and target.samefile(path)):
                shutil.copyfile(path, target)

    def forget(self) -> None:
        """Delete the weights and what was exported of them: nobody will use them."""
        with self._lock:
            export = getattr(self._engine, "_folder", self.folder)
            for folder in {export, self.folder}:
                shutil.rmtree(folder, ignore_errors=True)


def bare(encoder: Encoder) -> Encoder:
    """The encoder without its cache."""
    return encoder.inner if isinstance(encoder, CachedEncoder) else encoder


def save_own(encoder: Encoder, folder: Path) -> None:
    """Write the weights of an encoder that has its own beside the recipe in this folder."""
    inner = bare(encoder)
    if isinstance(inner, AutoEncoder | TunedEncoder):
        inner.save(folder / OWN)


def load_own(folder: Path, backend: str = "auto") -> Encoder:
    """The encoder that lies beside the recipe in this folder."""
    place = folder / OWN
    if not place.is_dir():
        raise EncoderError(
            f"there is no encoder beside the recipe in {str(folder)!r}; a private encoder needs "
            "its whole folder"
        )
    if (place / CARD).is_file():
        return AutoEncoder.load(place, OWN)
    check_folder(place)
    return TunedEncoder(place, backend)
