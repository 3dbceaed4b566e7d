"""ONNX Runtime and a fast tokenizer are all that encoding needs once a model has been exported.

Neither torch nor transformers is imported here. Work is spread over the cores by batches, each run
on one thread: as fast as one batch on all threads, and faster where other work wants the cores.

**A vector must depend on its own text alone, to the last bit.** A mechanism's ε is about the text
that is changed; if that text moved the bits of its neighbours' vectors, they would tell of it too.
Three things did: padding (sums over more numbers are rounded elsewhere), a batch of one (some sums
take another path), and in int8 the scale of activations, which is taken over a batch. So texts of
one length travel together, at least two of them, and in int8 each travels alone. That neighbours
then change nothing is a property of the machine's kernels, so each session is asked: if a probe's
bits move, every text travels alone there.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from capelet.encoders.tokens import (
    FastTokens,
    Ints,
    Rows,
    Tokens,
    equal_batches,
    pad_batch,
    token_batches,
)
from capelet.interfaces import Progress, Vectors

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Encoding

_BUDGET = 256  # tokens in a batch: measured a little better than 512, clearly than 1,024
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
        return self.is_independent

    @property
    def settings(self) -> str:
        alone = self._card["rows"] == 1
        return f"{'int8' if alone else 'onnx'} 1 onnxruntime {version('onnxruntime')}"

    @property
    def session(self) -> InferenceSession:
        if self._session is None:
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
        session = self.session
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        with ThreadPoolExecutor(cores()) as pool:
            for start in range(0, len(texts), _CHUNK):
                chunk = texts[start : start + _CHUNK]
                self._encode_chunk(session, pool, chunk, vectors[start : start + len(chunk)])
                progress("encoding", start + len(chunk), len(texts))
        return vectors

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return self.tokens.truncated(texts)

    def tokenize(self, texts: Sequence[str]) -> Sequence[str]:
        return self.tokens.tokenize(texts)

    def token_counts(self, texts: Sequence[str]) -> Ints:
        return self.tokens.counts(texts)

    def _encode_chunk(
        self,
        session: InferenceSession,
        pool: ThreadPoolExecutor,
        texts: Sequence[str],
        into: Vectors,
    ) -> None:
        encodings = self.tokens(texts)
        lengths: Ints = np.array([len(encoding) for encoding in encodings], dtype=np.int64)
        batches = (
            equal_batches(lengths, _BUDGET) if self.is_independent else token_batches(lengths, 1)
        )

        def run(rows: Rows) -> None:
            batch = [encodings[row] for row in rows]
            arrays = pad_batch(batch, self._card["inputs"], self._card["pad"])
            # Each batch has rows of its own, so the threads need no lock.
            into[rows] = session.run(None, arrays)[0]

        # One task for each thread, which takes batch after batch, and this thread is one of them:
        # with a task for each batch, a few short texts cost some 5 % more.
        turns = iter(batches)

        def take_turns() -> None:
            # Taking the next item of a list is one step of the interpreter, so it needs no lock.
            for rows in turns:
                run(rows)

        helpers = [pool.submit(take_turns) for _ in range(min(cores(), len(batches)) - 1)]
        take_turns()
        for helper in helpers:
            # An error in a thread is raised here.
            helper.result()

    @cached_property
    def is_independent(self) -> bool:
        """Whether texts may share a batch: on this machine, neighbours do not change a bit."""
        # int8 activations are scaled over a batch, so the question is answered.
        if self._card["rows"] == 1:
            return False
        return all(self._keeps_bits(encoding) for encoding in self.tokens(_PROBES))

    def _keeps_bits(self, encoding: Encoding | Tokens) -> bool:
        """Whether a probe has one vector in batches of two, five and many, first and last."""
        rows = pad_batch([encoding], self._card["inputs"], self._card["pad"])
        # Of the same length and other content: the probe's tokens backwards.
        other = {name: np.ascontiguousarray(row[:, ::-1]) for name, row in rows.items()}
        many = max(5, _BUDGET // max(1, len(encoding)))
        vectors = []
        for neighbours in (1, 4, many - 1):
            for is_first in (True, False):
                arrays = {
                    name: np.concatenate(
                        [row, *[other[name]] * neighbours][:: 1 if is_first else -1]
                    )
                    for name, row in rows.items()
                }
                vectors.append(self.session.run(None, arrays)[0][0 if is_first else -1])
        return all(np.array_equal(vectors[0], vector) for vector in vectors)


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


@cache
def cores() -> int:
    """Physical cores this process may use; looked up once, for it takes as long as a short text."""
    import joblib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where the physical ones cannot be counted, all count
        return int(joblib.cpu_count(only_physical_cores=True))
