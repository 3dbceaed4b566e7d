"""A dual encoder: a small network over words, trained on which sentence follows which.

It lives in a folder of `dual.json` (network, sizes, words, how it was trained) and
`dual.safetensors` (weights). Such a folder is an encoder wherever Capelet takes one. The list of
words was read off the training texts and the weights learnt from them: no guarantee covers them,
so both files are readable by their owner only.

Source: Song and Raghunathan, *Information Leakage in Embedding Models*, 2020, sections 2.1 and 7.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from capelet.data.text import words_and_signs
from capelet.encoders.tokens import token_batches
from capelet.errors import EncoderError
from capelet.files import sha256_of_file, writable_folder, write_whole
from capelet.interfaces import Progress, Vectors, silent

if TYPE_CHECKING:
    from capelet.encoders.dual_networks import SentenceNetwork

ABOUT, WEIGHTS = "dual.json", "dual.safetensors"
SCHEMA = 1
PAD, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unk>")
_BUDGET = 1 << 15  # tokens of one batch

Tokens = npt.NDArray[np.int64]


def numbered(texts: Sequence[str], number: Mapping[str, int], length: int) -> Tokens:
    """Rows of word numbers, cut at `length`, padded to the longest of them (1 at the least).

    >>> numbered(["a b", "c"], {"a": 2, "b": 3}, 5).tolist()
    [[2, 3], [1, 0]]
    """
    found = [
        [number.get(word, UNKNOWN) for word in words_and_signs(text)[:length]] for text in texts
    ]
    rows = np.full((len(texts), max(map(len, found), default=0) or 1), PAD, dtype=np.int64)
    for row, some in enumerate(found):
        rows[row, : len(some)] = some
    return rows


def is_dual(folder: Path) -> bool:
    """Whether a folder holds a dual encoder."""
    return (folder / ABOUT).is_file()


def save_dual(
    folder: Path | str,
    network: SentenceNetwork,
    words: Sequence[str],
    length: int,
    training: Mapping[str, Any],
) -> Path:
    """Write the folder; `dual.json` comes last, so a folder without it is no encoder."""
    from safetensors.torch import save

    target = writable_folder(folder)
    state = {
        name: held.detach().cpu().contiguous().clone()
        for name, held in network.state_dict().items()
    }
    weights = save(state)
    write_whole(target / WEIGHTS, weights, mode=0o600)
    about = {
        "schema": SCHEMA,
        "network": network.kind,
        "sizes": network.sizes,
        "length": length,
        "weights": hashlib.sha256(weights).hexdigest(),
        "guarantee": "none: what was learnt from the training texts is not covered",
        "training": dict(training),
        "words": list(words),
    }
    write_whole(target / ABOUT, json.dumps(about, ensure_ascii=False, indent=1) + "\n", mode=0o600)
    return target


class DualEncoder:
    """The encoder in such a folder; a text without a word has the zero vector."""

    def __init__(self, name: str, device: str | None = None) -> None:
        self.name = name
        self.backend = "torch"
        self._folder = Path(name).expanduser()
        self._device = device
        self._about = _about(self._folder)
        self._number = {word: place for place, word in enumerate(self._about["words"])}
        self._network: SentenceNetwork | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Callable[..., DualEncoder], tuple[str, str | None]]:
        return type(self), (self.name, self._device)  # another process reads its own weights

    @property
    def dimension(self) -> int:
        return int(self._about["sizes"]["dimension"])

    @property
    def training(self) -> dict[str, Any]:
        """How the encoder was trained, and what its own adversaries reached."""
        return dict(self._about["training"])

    @property
    def fingerprint(self) -> str:
        decides = {key: self._about[key] for key in ("network", "sizes", "length", "weights")}
        words = "\n".join(self._about["words"])
        parts = ["dual 1", json.dumps(decides, sort_keys=True), words]
        return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        network = self.opened()
        tokens = numbered(texts, self._number, int(self._about["length"]))
        return encoded(network, tokens, progress)

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        limit = int(self._about["length"])
        return np.array([len(words_and_signs(text)) > limit for text in texts], dtype=bool)

    def token_table(self) -> tuple[list[str], Vectors]:
        """Every word that the encoder knows, and its vector in the first layer."""
        table = self.opened().table.weight.detach().float().cpu().numpy()
        return list(self._about["words"])[len(SPECIAL) :], table[len(SPECIAL) :]

    def opened(self) -> SentenceNetwork:
        """The network with its weights, checked against what `dual.json` says of them."""
        with self._lock:
            if self._network is None:
                self._network = self._read()
            return self._network

    def _read(self) -> SentenceNetwork:
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        from capelet.encoders.dual_networks import build

        path = self._folder / WEIGHTS
        try:
            if sha256_of_file(path) != self._about["weights"]:
                raise EncoderError(
                    f"the weights in {str(self._folder)!r} are not those that {ABOUT} describes; "
                    "train again, or copy the whole folder"
                )
            network = build(self._about["network"], **self._about["sizes"])
            network.load_state_dict(load_file(path))
        except (OSError, SafetensorError, KeyError, TypeError, RuntimeError):
            raise EncoderError(
                f"{str(self._folder)!r} is not a whole dual encoder; copy the folder anew"
            ) from None
        device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
        return network.to(device).eval()


def encoded(network: SentenceNetwork, tokens: Tokens, progress: Progress = silent) -> Vectors:
    """The vectors of rows of word numbers; texts of like length travel together."""
    import torch

    device = next(network.parameters()).device
    vectors = np.zeros((len(tokens), network.sizes["dimension"]), dtype=np.float32)
    lengths = (tokens != PAD).sum(axis=1)
    done = 0
    with torch.inference_mode():
        for rows in token_batches(lengths, _BUDGET if device.type == "cpu" else 8 * _BUDGET):
            some = torch.from_numpy(tokens[rows, : max(1, int(lengths[rows].max()))]).to(device)
            vectors[rows] = network(some).cpu().numpy()
            done += len(rows)
            progress("encoding", done, len(tokens))
    return vectors


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        schema = about["schema"]
        whole = {"network", "sizes", "length", "weights", "training", "words"} <= set(about)
    except (OSError, ValueError, KeyError, TypeError):
        raise EncoderError(
            f"{str(folder / ABOUT)!r} is not the description of an encoder"
        ) from None
    if schema != SCHEMA:
        raise EncoderError(
            f"the encoder in {str(folder)!r} has schema {schema}, this version reads {SCHEMA}; "
            "use the version of capelet that wrote it, or train again"
        )
    if not whole:
        raise EncoderError(f"{str(folder / ABOUT)!r} lacks entries; train again")
    return dict(about)
