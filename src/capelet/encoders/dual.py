"""A dual encoder: a small network over words, trained on which sentence follows which.

It lives in a model folder of `dual.json` (network, sizes, words, how it was trained) and
`dual.safetensors` (weights). Such a folder is an encoder wherever Capelet takes one. The list of
words was read off the training texts and the weights learnt from them: no guarantee covers them.

Source: Song and Raghunathan, *Information Leakage in Embedding Models*, 2020, sections 2.1 and 7.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from capelet.data.text import words_and_signs
from capelet.encoders.batches import (
    BatchSize,
    encode_batches,
    fill_in_chunks,
    torch_keeps_bits,
    torch_workers,
)
from capelet.encoders.model_folder import DUAL_ENCODER, open_folder, write_folder
from capelet.errors import EncoderError
from capelet.files import expand_user
from capelet.interfaces import Progress, Vectors, silent
from capelet.numerics import padded
from capelet.privacy.origins import Origin
from capelet.training.device import choose

if TYPE_CHECKING:
    import torch

    from capelet.encoders.dual_networks import SentenceNetwork

ABOUT, WEIGHTS = "dual.json", "dual.safetensors"
PAD, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unk>")
_BUDGET = 1 << 12  # tokens of one batch
_CHUNK = 1 << 14  # texts between two words of progress
_LONGEST_PROBE = 17
# Observed: products of fewer rows take another path (a Transformer's below 16, an LSTM's below 4),
# and so does the last row of an LSTM.
_ON_PROCESSOR = BatchSize(_BUDGET, rows=16, spare=1)
_ON_GPU = BatchSize(8 * _BUDGET, fixed=True)

Tokens = npt.NDArray[np.int64]


def number_words(texts: Sequence[str], number: Mapping[str, int], length: int) -> Tokens:
    """Rows of word numbers, cut at `length`, padded to the longest of them (1 at the least).

    >>> number_words(["a b", "c"], {"a": 2, "b": 3}, 5).tolist()
    [[2, 3], [1, 0]]
    """
    codes = [
        [number.get(word, UNKNOWN) for word in words_and_signs(text)[:length]] for text in texts
    ]
    return padded(codes, max(map(len, codes), default=0) or 1, PAD)


def save_dual(
    folder: Path | str,
    network: SentenceNetwork,
    words: Sequence[str],
    length: int,
    training: Mapping[str, Any],
) -> Path:
    """Write the model folder of a trained network."""
    from safetensors.torch import save

    state = {
        # A copy of its own: safetensors refuses tensors that share memory, as an LSTM's may.
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in network.state_dict().items()
    }
    about = {
        "network": network.kind,
        "sizes": network.sizes,
        "length": length,
        "guarantee": "none: what was learnt from the training texts is not covered",
        "training": dict(training),
        "words": list(words),
    }
    description = json.dumps(about, ensure_ascii=False, indent=1) + "\n"
    files: dict[str, bytes | str | Path] = {WEIGHTS: save(state), ABOUT: description}
    return write_folder(folder, DUAL_ENCODER, files, origin=Origin.draw())


class DualEncoder:
    """The encoder in such a folder; a text without a word has the zero vector."""

    isolates_rows = True

    def __init__(self, name: str, device: str | None = None) -> None:
        self.name = name
        self.backend = "torch"
        self._device = device
        self._folder = open_folder(expand_user(name), DUAL_ENCODER)
        self._about = self._folder.read_json(ABOUT)
        if not {"network", "sizes", "length", "training", "words"} <= set(self._about):
            raise EncoderError(f"{str(self._folder.path / ABOUT)!r} lacks entries; train again")
        self._number = {word: place for place, word in enumerate(self._about["words"])}
        self._network: SentenceNetwork | None = None
        self._lock = threading.Lock()
        self.origin = self._folder.read_origin()

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
        # Only what decides the vectors; the account of the training is left out.
        decides = {key: self._about[key] for key in ("network", "sizes", "length")}
        decides["weights"] = self._folder.files[WEIGHTS]
        words = "\n".join(self._about["words"])
        parts = ["dual 2", json.dumps(decides, sort_keys=True), words]
        return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        network = self.load_network()
        tokens = number_words(texts, self._number, int(self._about["length"]))
        return encode_tokens(network, tokens, progress)

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        limit = int(self._about["length"])
        return np.array([len(words_and_signs(text)) > limit for text in texts], dtype=bool)

    def number(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text's words and signs, as the network reads them."""
        tokens = number_words(texts, self._number, int(self._about["length"]))
        return [row[row != PAD].tolist() for row in tokens]

    @property
    def words(self) -> tuple[str, ...]:
        """What each number stands for, padding and the unknown word first."""
        return tuple(self._about["words"])

    def token_table(self) -> tuple[list[str], Vectors]:
        """Every word that the encoder knows, and its vector in the first layer."""
        table = self.load_network().table.weight.detach().float().cpu().numpy()
        return list(self._about["words"])[len(SPECIAL) :], table[len(SPECIAL) :]

    def load_network(self) -> SentenceNetwork:
        """The network with its weights, read at the first use."""
        # Two threads that come first at once must not both read the weights.
        with self._lock:
            if self._network is None:
                self._network = self._read()
            return self._network

    def _read(self) -> SentenceNetwork:
        from safetensors import SafetensorError
        from safetensors.torch import load

        from capelet.encoders.dual_networks import build

        try:
            network = build(self._about["network"], **self._about["sizes"])
            network.load_state_dict(load(self._folder.read(WEIGHTS)))
        except (SafetensorError, KeyError, TypeError, RuntimeError):
            raise EncoderError(
                f"{str(self._folder.path)!r} is not a whole dual encoder; copy the folder again"
            ) from None
        return network.to(choose(self._device)).eval()


def encode_tokens(network: SentenceNetwork, tokens: Tokens, progress: Progress = silent) -> Vectors:
    """The vectors of rows of word numbers, each of its own row alone (`batches`)."""
    device = next(network.parameters()).device
    size = _batch_size(network, device)
    run = partial(_run, network, device)
    with torch_workers(device) as threads:

        def fill(some: Tokens, into: Vectors) -> None:
            # A text without a word is in no batch and keeps its zero.
            lengths = (some != PAD).sum(axis=1)
            items = [row[:length] for row, length in zip(some, lengths, strict=True)]
            encode_batches(run, items, lengths, size, into, threads)

        return fill_in_chunks(fill, tokens, network.sizes["dimension"], _CHUNK, progress)


def _run(network: SentenceNetwork, device: torch.device, items: Sequence[Tokens]) -> Vectors:
    import torch

    with torch.inference_mode():
        return np.asarray(network(torch.from_numpy(np.stack(items)).to(device)).cpu().numpy())


# Which kernels run is decided by a network's shape and the device, so weights in training, or of
# another model, need no new question.
_batch_sizes: dict[tuple[object, ...], BatchSize | None] = {}


def _batch_size(network: SentenceNetwork, device: torch.device) -> BatchSize | None:
    """How texts may share a batch; None where a probe's bits move."""
    shape = (network.kind, *sorted(network.sizes.items()), device)
    if shape not in _batch_sizes:
        size = _ON_PROCESSOR if device.type == "cpu" else _ON_GPU
        _batch_sizes[shape] = size if _keeps_bits(network, device, size) else None
    return _batch_sizes[shape]


def _keeps_bits(network: SentenceNetwork, device: torch.device, size: BatchSize) -> bool:
    run = partial(_run, network, device)
    numbers = np.arange(1, 1 + _LONGEST_PROBE) % network.sizes["words"]
    probes = [np.maximum(numbers[:length], 1) for length in (1, 3, _LONGEST_PROBE)]
    items = [(probe, probe[::-1].copy(), len(probe)) for probe in probes]
    return torch_keeps_bits(run, items, size, device)
