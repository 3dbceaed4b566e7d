"""A transformer encoder is one model folder behind one of three back-ends, decided once.

`torch` runs sentence-transformers; `onnx` runs the same pipeline exported to ONNX Runtime, compared
with torch before its first use; `int8` is that graph with 8-bit weights. Which one made a vector is
part of the encoder's fingerprint, so an audit can tell that it used the back-end that releases.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from capelet.encoders.batches import (
    BatchSize,
    encode_batches,
    fill_in_chunks,
    torch_keeps_bits,
    torch_workers,
)
from capelet.encoders.folders import content_hash, token_table, transformer_folder
from capelet.encoders.quiet import quiet, without_bars
from capelet.encoders.tokens import FastTokens, sound
from capelet.errors import EncoderError, MissingExtra
from capelet.interfaces import Progress, Vectors, silent
from capelet.training.device import choose, gpu_available

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

BACKENDS = ("auto", "torch", "onnx", "int8")
_ONNX_PACKAGES = ("onnxruntime", "onnx", "onnxscript")
_CHUNK = 1024  # texts between two words of progress
# Observed: fewer tokens in a product take another path. A GPU's kernel is chosen by shape.
_ON_PROCESSOR, _ON_GPU = BatchSize(512, tokens=64), BatchSize(8192, fixed=True)
# Short ones, where the path changes, and a usual one.
_PROBES = ("red", "a cat sat", "the old dog was not in the red house by the sea , and nobody came")


class Engine(Protocol):
    """What a back-end gives: vectors, and which texts were cut."""

    @property
    def dimension(self) -> int: ...

    @property
    def settings(self) -> str:
        """What of the back-end decides the vectors, in words, for the fingerprint."""
        ...

    def encode(self, texts: Sequence[str], progress: Progress) -> Vectors: ...

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]: ...

    def tokenize(self, texts: Sequence[str]) -> Sequence[str]:
        """The texts, with their tokens where `encode` can use them."""
        ...

    def token_counts(self, texts: Sequence[str]) -> npt.NDArray[np.int64]: ...

    @property
    def gathers_lengths(self) -> bool:
        """Whether texts of one length cost less together than by themselves."""
        ...


class TransformerEncoder:
    """Any sentence-transformers or Hugging Face model; a plain model is mean-pooled.

    A text without a single token has the zero vector. With `backend="auto"` a model that cannot be
    exported faithfully falls back to torch with a warning; asked for by name it is an error.
    """

    isolates_rows = True

    def __init__(self, name: str, backend: str = "auto") -> None:
        self.name = name
        self.backend = chosen_backend(backend)
        self._backend_option = backend
        self._engine: Engine | None = None
        self._fingerprint: str | None = None
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Callable[..., TransformerEncoder], tuple[str, str]]:
        return type(self), (self.name, self._backend_option)  # another process loads its own model

    @property
    def dimension(self) -> int:
        return self._ready_engine().dimension

    @property
    def fingerprint(self) -> str:
        if self._fingerprint is None:
            parts = [content_hash(self.place()), self._ready_engine().settings]
            self._fingerprint = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return self._fingerprint

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        engine = self._ready_engine(progress)
        if not len(texts):
            return np.zeros((0, engine.dimension), dtype=np.float32)
        vectors = engine.encode([sound(text) for text in texts], progress)
        # Refused here, with a sentence, before noise or an attacker meets a NaN.
        if not np.isfinite(vectors).all():
            raise EncoderError(
                f"the encoder {self.name!r} gave values that are not finite; its weights are broken"
            )
        return vectors

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return self._ready_engine().truncated([sound(text) for text in texts])

    def tokenize(self, texts: Sequence[str]) -> Sequence[str]:
        """The texts as they are, and where the back-end can use them with their tokens.

        For who counts first and encodes later: each text is then read once.
        """
        return self._ready_engine().tokenize([sound(text) for text in texts])

    def token_counts(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """How many tokens are read of each text: what costs time, and never more than the limit."""
        return self._ready_engine().token_counts([sound(text) for text in texts])

    @property
    def gathers_lengths(self) -> bool:
        """Whether texts of one length cost less together: who waits for others may do so."""
        return self._ready_engine().gathers_lengths

    def token_table(self) -> tuple[list[str], Vectors]:
        """Every token, as the tokenizer spells it, and its input embedding; no model is run."""
        return token_table(self.place())

    def place(self) -> Path:
        """The checked model folder."""
        return transformer_folder(self.name)

    def _ready_engine(self, progress: Progress = silent) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = self._load(self.place(), progress)
            return self._engine

    def _load(self, folder: Path, progress: Progress) -> Engine:
        if self.backend == "torch":
            return TorchEngine(folder)
        from capelet.encoders.export import NotExportable, export_folder
        from capelet.encoders.onnx import OnnxEngine

        try:
            return OnnxEngine(lambda: export_folder(folder, self.backend, progress))
        except NotExportable as error:
            if self._backend_option != "auto":
                raise EncoderError(
                    f"the encoder {self.name!r} cannot run on the back-end {self.backend!r} "
                    f"({error}); use the back-end 'torch'"
                ) from None
            warnings.warn(
                f"{self.name!r} runs on torch, not on ONNX Runtime: {error}", stacklevel=4
            )
            self.backend = "torch"
            return TorchEngine(folder)


class TorchEngine:
    """sentence-transformers itself, on a GPU where there is one.

    A vector depends on its own text alone (`batches`).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model: SentenceTransformer | None = None
        self._tokens: FastTokens | None = None

    @property
    def gathers_lengths(self) -> bool:
        return self.batch_size is not None

    @property
    def settings(self) -> str:
        # Without the build (+cpu, +cu126): machines with and without a GPU share fingerprints.
        release = version("torch").split("+")[0]
        return f"torch 2 {release}, sentence-transformers {version('sentence-transformers')}"

    @property
    def dimension(self) -> int:
        return int(self.model.get_embedding_dimension() or 0)

    @property
    def model(self) -> SentenceTransformer:
        if self._model is None:
            self._model = sentence_transformer(self._folder).eval()
            self._tokens = fast_tokens(self._model)
        return self._model

    def encode(self, texts: Sequence[str], progress: Progress) -> Vectors:
        size = self.batch_size
        with torch_workers(self.model.device) as threads:

            def fill(some: Sequence[str], into: Vectors) -> None:
                # Read in this thread: a tokenizer of transformers is not made for several.
                inputs = self._inputs(some)
                lengths = np.array([item.length for item in inputs], dtype=np.int64)
                encode_batches(self._run, inputs, lengths, size, into, threads)

            return fill_in_chunks(fill, texts, self.dimension, _CHUNK, progress)

    @cached_property
    def batch_size(self) -> BatchSize | None:
        """How texts may share a batch; None where each must travel alone."""
        probes = self._inputs(_PROBES)
        if not all(item.rows for item in probes):
            return None
        size = _ON_PROCESSOR if self.model.device.type == "cpu" else _ON_GPU
        items = [(item, item.backwards(), item.length) for item in probes]
        return size if torch_keeps_bits(self._run, items, size, self.model.device) else None

    def _inputs(self, texts: Sequence[str]) -> list[_Input]:
        """What the model is given for each text, cut to its own length."""
        import torch

        model = self.model
        prompt = model.prompts.get(model.default_prompt_name or "")
        features = model.preprocess(list(texts), prompt=prompt)
        mask = features.get("attention_mask")
        if not torch.is_tensor(mask) or mask.ndim != 2:
            # No rows of tokens, as in a model that adds up word vectors.
            alone = (model.preprocess([text], prompt=prompt) for text in texts)
            return [_Input(1, {}, dict(item)) for item in alone]
        rows = {
            name: value
            for name, value in features.items()
            if torch.is_tensor(value) and value.shape == mask.shape
        }
        others = {name: value for name, value in features.items() if name not in rows}
        return [
            _Input(
                int(real.sum()), {name: value[row][real] for name, value in rows.items()}, others
            )
            for row, real in enumerate(mask.bool())
        ]

    def _run(self, inputs: Sequence[_Input]) -> Vectors:
        import torch

        model = self.model
        features = dict(inputs[0].others)
        for name in inputs[0].rows:
            features[name] = torch.stack([item.rows[name] for item in inputs])
        with torch.inference_mode():
            on_device = {
                name: value.to(model.device) if torch.is_tensor(value) else value
                for name, value in features.items()
            }
            vectors = model(on_device)["sentence_embedding"]
            return np.asarray(vectors[:, : model.truncate_dim].float().cpu().numpy())

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        model = self.model
        if self._tokens is not None:
            return self._tokens.truncated(texts)
        limit = model.max_seq_length or sys.maxsize
        # A token takes a byte or more: shorter texts cannot be cut and are not tokenised.
        long = [len(text.encode()) > limit - 3 for text in texts]
        counts = [
            len(model.tokenizer(text, truncation=False)["input_ids"]) if could else 0
            for text, could in zip(texts, long, strict=True)
        ]
        return np.array(counts, dtype=np.int64) > limit

    def tokenize(self, texts: Sequence[str]) -> Sequence[str]:
        return texts  # sentence-transformers reads them itself

    def token_counts(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        model = self.model
        if self._tokens is not None:
            return self._tokens.counts(texts)
        limit = model.max_seq_length or sys.maxsize
        counts = [len(model.tokenizer(text, truncation=False)["input_ids"]) for text in texts]
        return np.minimum(np.array(counts, dtype=np.int64), limit)


@dataclass(frozen=True, eq=False)
class _Input:
    """One text as a model takes it: how many tokens, a row of each input, and what all share."""

    length: int
    rows: Mapping[str, torch.Tensor]
    others: Mapping[str, Any]

    def backwards(self) -> _Input:
        """Of the same length and other content."""
        return replace(self, rows={name: row.flip(0) for name, row in self.rows.items()})


def sentence_transformer(
    folder: Path, device: str | None = None, attention: str | None = None
) -> SentenceTransformer:
    """The folder as a sentence-transformers model: no code of its own, no pickle, no network."""
    # float32 whatever the folder prefers: it is what an export is compared with.
    settings: dict[str, Any] = {"use_safetensors": True, "dtype": "float32"}
    if attention is not None:
        settings["attn_implementation"] = attention
    with quiet():
        without_bars()
        from sentence_transformers import SentenceTransformer

        try:
            model = SentenceTransformer(
                str(folder),
                device=str(choose(device)),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs=settings,
            )
        except Exception as error:  # every library below raises its own kinds
            raise EncoderError(
                f"the model folder {str(folder)!r} could not be loaded ({type(error).__name__}); "
                "it must be a sentence-transformers or Hugging Face model with safetensors weights"
            ) from error
        _with_padding(model)
        return model.eval()


def _with_padding(model: SentenceTransformer) -> None:
    """Give a tokenizer without a padding token (GPT-2's has none) its last token for it.

    Which one it is decides nothing: padding is masked in attention and left out of the mean.
    """
    tokenizer = model.tokenizer
    if not callable(tokenizer) or getattr(tokenizer, "pad_token", "") is not None:
        return
    stand_in = tokenizer.eos_token or tokenizer.unk_token
    if stand_in is None:
        stand_in = tokenizer.convert_ids_to_tokens(0)
    tokenizer.pad_token = stand_in


def fast_tokens(model: SentenceTransformer) -> FastTokens | None:
    """The model's own tokenizer as a `FastTokens`, or None where it has no fast one."""
    tokenizer = model.tokenizer
    if not getattr(tokenizer, "is_fast", False):
        return None
    from tokenizers import Tokenizer

    # A copy, so that our limit does not change the model's own tokenizer.
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    limit = model.max_seq_length
    length = limit if limit is not None and limit < 1_000_000 else None  # 1e30 means "no limit"
    prompt = model.prompts.get(model.default_prompt_name or "") or ""
    return FastTokens(copy, length, getattr(tokenizer, "truncation_side", "right"), prompt)


def chosen_backend(name: str) -> str:
    """The back-end that this name means on this machine; torch is not imported to find out."""
    has_onnx = all(importlib.util.find_spec(name) for name in _ONNX_PACKAGES)
    if name in ("onnx", "int8") and not has_onnx:
        raise MissingExtra(f"the back-end {name!r}", "onnx")
    if name != "auto":
        return name
    # ONNX Runtime runs on the processor only (`onnx._session`).
    if gpu_available():
        return "torch"
    return "onnx" if has_onnx else "torch"
