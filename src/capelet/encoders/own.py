"""Encoders with weights of their own, which travel inside the folder of a private encoder.

A recipe names such an encoder `./encoder`: the folder beside it. There are two: an auto-encoder,
and a transformer whose last layers were trained along with a map.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from capelet.encoders.autoencoder import AutoEncoder
from capelet.encoders.cache import CachedEncoder
from capelet.encoders.dual import DualEncoder
from capelet.encoders.folders import check_folder, model_files
from capelet.encoders.model_folder import AUTO_ENCODER, TUNED_ENCODER, ModelFolder, write_folder
from capelet.encoders.transformer import TransformerEncoder
from capelet.files import TemporaryFolder, expand_user
from capelet.interfaces import Encoder
from capelet.privacy.origins import Origin, keyed_name

# The name of an encoder that lies beside its recipe.
OWN = "./encoder"
_PLACE = "encoder"


class TunedEncoder(TransformerEncoder):
    """A transformer in a folder of its own, which goes wherever its private encoder is saved.

    One that was just trained has a `temporary` folder, which ends with it.
    """

    def __init__(
        self,
        folder: Path,
        backend: str = "auto",
        origin: Origin | None = None,
        temporary: TemporaryFolder | None = None,
    ) -> None:
        super().__init__(OWN, backend)
        self.folder = folder
        self.origin = origin or Origin.draw()
        self._temporary = temporary

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.folder, self._backend_option, self.origin)

    def place(self) -> Path:
        check_folder(self.folder)
        return self.folder

    def save(self, folder: Path) -> None:
        """Copy the model to a model folder."""
        files = model_files(self.folder)
        by_name = {path.relative_to(self.folder).as_posix(): path for path in files}
        write_folder(folder, TUNED_ENCODER, by_name, origin=self.origin)

    def forget(self) -> None:
        """Delete the weights and what was exported of them: nobody will use them."""
        with self._lock:
            # An export to ONNX holds the tuned weights a second time.
            export = getattr(self._engine, "_folder", self.folder)
            for folder in {export, self.folder}:
                shutil.rmtree(folder, ignore_errors=True)


def unwrap(encoder: Encoder) -> Encoder:
    """The encoder without its cache."""
    return encoder.inner if isinstance(encoder, CachedEncoder) else encoder


def origin_of(encoder: Encoder) -> Origin | None:
    """Where an encoder that learnt from somebody's texts comes from; None of a public one.

    A model that Capelet did not train is taken to be public: nothing says what it learnt from.
    """
    inner = unwrap(encoder)
    return inner.origin if isinstance(inner, AutoEncoder | TunedEncoder | DualEncoder) else None


def public_fingerprint(encoder: Encoder) -> str:
    """The encoder's fingerprint, as it may leave: of weights that not everybody has, a keyed one.

    A model in a folder may be the user's own. Whoever can guess what it learnt from could train it
    again; so its hash stays under the user's key, which still tells him an exchanged model.
    """
    inner = unwrap(encoder)
    is_own = origin_of(encoder) is not None
    in_folder = isinstance(inner, TransformerEncoder) and expand_user(inner.name).is_dir()
    return keyed_name(inner.fingerprint) if is_own or in_folder else inner.fingerprint


def save_own(encoder: Encoder, folder: Path) -> tuple[str, ...]:
    """Write an encoder that has weights of its own into this folder; the names of what was made."""
    inner = unwrap(encoder)
    if not isinstance(inner, AutoEncoder | TunedEncoder):
        return ()
    inner.save(folder / _PLACE)
    return (_PLACE,)


def load_own(folder: ModelFolder, backend: str = "auto") -> Encoder:
    """The encoder that lies beside the recipe in a private encoder's folder."""
    inner = folder.folder(_PLACE, TUNED_ENCODER, AUTO_ENCODER)
    if inner.kind == AUTO_ENCODER:
        return AutoEncoder.load(inner, OWN)
    # All of its files: transformers opens them by their paths, not through the manifest.
    inner.check()
    check_folder(inner.path)
    return TunedEncoder(inner.path, backend, inner.read_origin())
