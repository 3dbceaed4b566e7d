"""A model folder becomes an ONNX graph once, compared with torch before anyone may use it.

The graph is the whole sentence-transformers pipeline: transformer, pooling, dense layers and
normalisation. It lies under the cache folder, named after the hash of the weights and the versions
of everything that took part in the export, and is written whole or not at all. What cannot be
exported faithfully is remembered as refused, with the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from capelet.encoders.folders import content_hash, make_whole
from capelet.encoders.quiet import quiet
from capelet.files import cache_folder, private_folder
from capelet.interfaces import Progress, Vectors, silent

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

FORMAT = 1  # goes up when a stored export would have to be made again
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
OUTPUT = "sentence_vectors"
_EXACT, _CLOSE = 0.9999, 0.98  # least cosine with torch: of any probe in fp32, on average in int8
_BIG = 1_500_000_000  # bytes; an ONNX file of one piece ends at 2 GB

_SENTENCE = "The quick brown fox jumps over the lazy dog while 12 people watch, and nobody minds. "
# Empty, one word, other scripts, longer than any limit: what a graph might treat otherwise.
PROBES = (
    "",
    "Yes.",
    "We stayed three nights and would come back.",
    "Ünïcödé – naïve café, 東京, Привет, مرحبا 🙂 x² ½",
    _SENTENCE,
    _SENTENCE * 3,
    _SENTENCE * 8,
    "It was delivered late, the box was open and the colour was wrong; a refund came in May.",
    _SENTENCE * 400,
)


class NotExportable(Exception):
    """The model cannot run on ONNX Runtime with the vectors that torch gives; says why."""


def export_folder(folder: Path, backend: str, progress: Progress = silent) -> Path:
    """The folder with the graph, the tokenizer and the settings of this model for that back-end."""
    key = hashlib.sha256(json.dumps([content_hash(folder), _versions()]).encode()).hexdigest()
    ready = _models() / f"{key[:32]}-{backend}"
    if not _card(ready):
        progress("preparing the encoder", 0, 1)
        if backend == "int8":
            exact = export_folder(folder, "onnx", progress)
            write = partial(_quantise, exact)
        else:
            write = partial(_export, folder)
        make_whole(ready, "export", partial(_write_with_card, write))
        progress("preparing the encoder", 1, 1)
    card = _card(ready)
    if "refused" in card:
        raise NotExportable(card["refused"])
    return ready


def cosines(left: Vectors, right: Vectors) -> Vectors:
    """Cosine row by row; two zero vectors count as equal, zero and non-zero as orthogonal."""
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    dots = np.einsum("ij,ij->i", left, right)
    both_zero = ~left.any(axis=1) & ~right.any(axis=1)
    return np.where(both_zero, 1.0, dots / np.where(norms > 0, norms, 1.0))


def _versions() -> dict[str, str]:
    parts = ("torch", "transformers", "sentence-transformers", "onnx", "onnxscript", "onnxruntime")
    return {"format": str(FORMAT), **{part: version(part) for part in parts}}


def _models() -> Path:
    try:
        private_folder(cache_folder())
        return private_folder(cache_folder() / "models")
    except OSError as error:
        raise NotExportable(f"the cache folder cannot be written ({error.strerror})") from None


def _card(ready: Path) -> dict[str, Any]:
    """The settings of a finished export, or nothing; what cannot be read is cleared away."""
    try:
        card = json.loads((ready / "encoder.json").read_text(encoding="utf-8"))
        return card if isinstance(card, dict) else {}
    except (OSError, ValueError):
        if ready.exists():
            shutil.rmtree(ready, ignore_errors=True)
        return {}


def _write_with_card(write: Callable[[Path], dict[str, Any]], place: Path) -> None:
    """Let `write` fill the folder; its settings, or why there are none, are the card."""
    try:
        card = write(place)
    except NotExportable as refusal:
        shutil.rmtree(place)
        place.mkdir(mode=0o700)
        card = {"refused": str(refusal)}
    (place / "encoder.json").write_text(json.dumps(card, sort_keys=True), encoding="utf-8")


def _export(folder: Path, place: Path) -> dict[str, Any]:
    """Write graph, tokenizer and torch's own probe vectors to `place`; the settings come back."""
    from capelet.encoders.transformer import fast_tokens, sentence_transformer

    model = sentence_transformer(folder, device="cpu", attention="eager")
    tokens = fast_tokens(model)
    if tokens is None:
        raise NotExportable("its tokenizer is not a fast one")
    inputs = _inputs(model)
    tokens.save(place / "tokenizer.json")
    card: dict[str, Any] = {
        "dimension": int(model.get_embedding_dimension() or 0),
        "inputs": inputs,
        "limit": tokens.limit,
        "prompt": tokens.prompt,
        "truncation": tokens.side,
        "rows": None,
    }
    _write_graph(model, inputs, place / "model.onnx")
    # Where no special tokens are added, the empty text has no token and nothing to compare.
    probes = [text for text in PROBES if text or model.tokenizer.num_special_tokens_to_add(False)]
    reference = model.encode(probes, batch_size=4, show_progress_bar=False)
    card["probes"] = probes
    np.save(place / "probes.npy", np.asarray(reference, dtype=np.float32), allow_pickle=False)
    worst = float(_agreement(place, card).min())
    # `not >=` and no `<`: a NaN must be refused too.
    if not worst >= _EXACT:
        raise NotExportable(f"the exported graph differs from torch (cosine {worst:.5f})")
    return card


def _inputs(model: SentenceTransformer) -> list[str]:
    """The tensors that the tokenizer feeds; anything unusual cannot be exported."""
    features = model.preprocess(["one text", "and another one"])
    tensors = [name for name, value in features.items() if hasattr(value, "shape")]
    if not set(tensors) <= set(INPUTS) or "attention_mask" not in tensors:
        raise NotExportable("its inputs are " + ", ".join(sorted(tensors)))
    prompt = model.prompts.get(model.default_prompt_name or "")
    # The graph pools over every token, so a prompt would be averaged into the vector.
    if prompt and any(getattr(module, "include_prompt", True) is False for module in model):
        raise NotExportable("its pooling leaves the prompt out")
    return [name for name in INPUTS if name in tensors]


def _write_graph(model: SentenceTransformer, inputs: list[str], path: Path) -> None:
    """`torch.onnx.export` of the pipeline with free batch and length; chatter is swallowed."""
    import torch

    features = model.preprocess(["one text of some words", "and another one"])
    free = {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens")}
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    try:
        with quiet(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
            torch.onnx.export(
                _pipeline(model, inputs),
                tuple(features[name] for name in inputs),
                str(path),
                dynamo=True,
                input_names=inputs,
                output_names=[OUTPUT],
                dynamic_shapes=(tuple(dict(free) for _ in inputs),),
                external_data=size > _BIG,
                verbose=False,
            )
    except Exception as error:  # the exporter fails in many ways; all mean "stay with torch"
        raise NotExportable(f"the export failed ({type(error).__name__})") from None


def _pipeline(model: SentenceTransformer, inputs: list[str]) -> torch.nn.Module:
    """The model as one module from plain tensors to the sentence vector."""
    import torch

    class Pipeline(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.modules_in_order = torch.nn.ModuleList(list(model))

        def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
            features: dict[str, Any] = dict(zip(inputs, tensors, strict=True))
            for module in self.modules_in_order:
                features = module(features)
            vectors: torch.Tensor = features["sentence_embedding"]
            return vectors

    return Pipeline().eval()


def _quantise(exact: Path, place: Path) -> dict[str, Any]:
    """The fp32 export with int8 weights, one scale per output channel, checked on the probes.

    Activations are scaled at run time over a whole batch, so a text's vector would depend on its
    neighbours; `rows: 1` makes every text travel alone, which costs nothing on a CPU.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    card = _card(exact)
    big = (exact / "model.onnx").stat().st_size > _BIG or len(list(exact.glob("*.data"))) > 0
    with quiet():
        quantize_dynamic(
            exact / "model.onnx",
            place / "model.onnx",
            per_channel=True,
            op_types_to_quantize=["MatMul"],
            weight_type=QuantType.QInt8,
            use_external_data_format=big,
        )
    for name in ("tokenizer.json", "probes.npy"):
        shutil.copy(exact / name, place / name)
    card["rows"] = 1
    mean = float(_agreement(place, card).mean())
    if not mean >= _CLOSE:
        raise NotExportable(f"int8 weights change its vectors too much (mean cosine {mean:.3f})")
    return card


def _agreement(place: Path, card: dict[str, Any]) -> Vectors:
    """Cosine of each probe between the graph in `place` and torch."""
    from capelet.encoders.onnx import OnnxEngine

    (place / "encoder.json").write_text(json.dumps(card), encoding="utf-8")
    engine = OnnxEngine(lambda: place)
    reference = np.load(place / "probes.npy", allow_pickle=False)
    return cosines(engine.encode(card["probes"], silent), reference)
