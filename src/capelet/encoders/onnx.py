"""ONNX Runtime and a fast tokenizer are all that encoding needs once a model has been exported.

Neither torch nor transformers is imported here. A vector depends on its own text alone
(`batches`). In int8 the scale of activations is taken over a batch, so each text travels alone.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from capelet.encoders.batches import BatchSize, encode_batches, fill_in_chunks, keeps_bits, workers
from capelet.encoders.tokens import FastTokens, Ints, Tokens, token_arrays
from capelet.interfaces import Progress, Vectors
from capelet.silence import warn_if_late

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding

# 256 tokens in a batch: measured a little better than 512, clearly than 1,024.
_SIZE = BatchSize(256)
_PROBES = ("a cat sat", "the old dog was not in the red house by the sea , and nobody was there")
_CHUNK = 4096  # texts tokenised at a time, which bounds the memory


class OnnxEngine:
    """An exported model: the graph runs in ONNX Runtime, the tokens come from `tokenizers`.

    `prepare` gives the folder of the export, making it if need be; it is called again, once, if the
    stored graph turns out to be broken.
    """

    def __init__(self, prepare: Callable[[], Path]) -> None:
        self._prepare = prepare
        self._folder = prepare()
        self._card: dict[str, Any] = json.loads((self._folder / "encoder.json").read_text("utf-8"))
        self._session: InferenceSession | None = None
        self._tokens: FastTokens | None = None

    @property
    def dimension(self) -> int:
        return int(self._card["dimension"])

    @property
    def gathers_lengths(self) -> bool:
        # Where each text travels alone there is nothing to share.
        return self.batch_size is not None

    @property
    def settings(self) -> str:
        alone = self._card["rows"] == 1
        return f"{'int8' if alone else 'onnx'} 1 onnxruntime {version('onnxruntime')}"

    @property
    def session(self) -> InferenceSession:
        if self._session is None:
            warn_if_late("onnxruntime")
            try:
                self._session = _session(self._folder / "model.onnx")
            except Exception:  # a broken file has no exception of its own; make it again, once
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = self._prepare()
                self._session = _session(self._folder / "model.onnx")
        return self._session

    @property
    def tokens(self) -> FastTokens:
        if self._tokens is None:
            card = self._card
            path = self._folder / "tokenizer.json"
            self._tokens = FastTokens.from_file(
                path, card["limit"], card["truncation"], card["prompt"]
            )
        return self._tokens

    def encode(self, texts: Sequence[str], progress: Progress) -> Vectors:
        size = self.batch_size
        with workers() as threads:

            def fill(some: Sequence[str], into: Vectors) -> None:
                encodings = self.tokens(some)
                lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
                encode_batches(self._run, encodings, lengths, size, into, threads)

            return fill_in_chunks(fill, texts, self.dimension, _CHUNK, progress)

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return self.tokens.truncated(texts)

    def tokenize(self, texts: Sequence[str]) -> Sequence[str]:
        return self.tokens.tokenize(texts)

    def token_counts(self, texts: Sequence[str]) -> Ints:
        return self.tokens.counts(texts)

    def _run(self, encodings: Sequence[Encoding | Tokens]) -> Vectors:
        arrays = token_arrays(encodings, self._card["inputs"])
        return np.asarray(self.session.run(None, arrays)[0])

    @cached_property
    def batch_size(self) -> BatchSize | None:
        """How texts may share a batch; None where each must travel alone."""
        self.session  # noqa: B018  # read here, before threads ask for it
        # int8 activations are scaled over a batch, so the question is answered.
        if self._card["rows"] == 1:
            return None
        keeps = all(
            keeps_bits(self._run, encoding, _backwards(encoding), len(encoding), _SIZE)
            for encoding in self.tokens(_PROBES)
        )
        return _SIZE if keeps else None


def _backwards(encoding: Encoding | Tokens) -> Tokens:
    """Of the same length and other content."""
    ids, type_ids = (np.array(row, np.int32)[::-1] for row in (encoding.ids, encoding.type_ids))
    return Tokens(ids, type_ids)


def _session(path: Path) -> InferenceSession:
    """A session whose every run stays on the calling thread; the callers are many."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Measured: with Add and LayerNormalization fused, a run takes some 15 to 25 % longer.
    return onnxruntime.InferenceSession(
        str(path),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],
    )
