"""A transformer's vector is the masked mean over its real tokens, on every back-end."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from capelet.encoders import load, transformer
from capelet.encoders.export import cosines, export_folder
from capelet.encoders.onnx import OnnxEngine
from capelet.errors import EncoderError, MissingExtra
from capelet.interfaces import Vectors, silent

TEXTS = [
    "the dog was good",
    "red",
    "a very bad cat, and not a red house! " * 3,
    "is the cat blue ?",
]


def mean_pooled(folder: Path, texts: list[str], limit: int) -> Vectors:
    """The reference, by hand: one text at a time, so that there is no padding at all."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, use_safetensors=True).eval()
    rows = []
    with torch.no_grad():
        for text in texts:
            inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=limit)
            rows.append(model(**inputs).last_hidden_state[0].mean(dim=0).numpy())
    return np.stack(rows)


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_plain_model_is_mean_pooled_over_real_tokens(tiny_folder: Path, backend: str) -> None:
    vectors = load(str(tiny_folder), backend).encode(TEXTS)
    np.testing.assert_allclose(vectors, mean_pooled(tiny_folder, TEXTS, 24), atol=1e-5)


def test_minilm_is_the_normalised_mean() -> None:
    encoder = load("minilm", "onnx")
    reference = mean_pooled(transformer.transformer_folder("minilm"), TEXTS, 256)
    reference /= np.linalg.norm(reference, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), reference, atol=1e-5)
    assert encoder.dimension == 384


def test_int8_is_near_and_not_equal() -> None:
    exact, small = load("minilm", "onnx"), load("minilm", "int8")
    cosine = cosines(exact.encode(TEXTS), small.encode(TEXTS))
    assert 0.97 < cosine.mean() < 0.99999
    assert exact.fingerprint != small.fingerprint


def test_truncation_is_counted_at_the_very_limit() -> None:
    encoder = load("minilm", "onnx")
    texts = ["dog " * 254, "dog " * 255, "x" * 5000]  # two places go to [CLS] and [SEP]
    assert encoder.truncated(texts).tolist() == [False, True, False]
    cut = encoder.encode(["dog " * 254, "dog " * 300])
    np.testing.assert_allclose(cut[0], cut[1], atol=1e-5)


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_a_text_of_no_tokens_is_the_zero_vector(bare_folder: Path, backend: str) -> None:
    vectors = load(str(bare_folder), backend).encode(["", "the dog"])
    assert not vectors[0].any()
    assert vectors[1].any()


def test_the_fingerprint_follows_the_weights(tiny_folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    other = Path(shutil.copytree(tiny_folder, tmp_path / "other"))
    same = Path(shutil.copytree(tiny_folder, tmp_path / "same"))
    weights = load_file(other / "model.safetensors")
    weights["pooler.dense.bias"] = weights["pooler.dense.bias"] + 1
    save_file(weights, other / "model.safetensors", metadata={"format": "pt"})
    prints = [load(str(f), "torch").fingerprint for f in (tiny_folder, same, other)]
    assert prints[0] == prints[1] != prints[2]


def test_encoding_needs_no_torch_once_the_graph_is_there(tiny_folder: Path) -> None:
    load(str(tiny_folder), "onnx").encode(["a"])
    code = (
        "import sys; from capelet.encoders import load\n"
        "heavy = {'torch', 'transformers', 'sentence_transformers'}\n"
        "assert not {*heavy, 'onnxruntime', 'tokenizers'} & set(sys.modules)\n"
        f"encoder = load({str(tiny_folder)!r}, 'onnx')\n"
        "encoder.encode(['a dog']); encoder.truncated(['a dog']); encoder.fingerprint\n"
        "assert not heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_model_without_a_faithful_graph_falls_back_with_a_warning(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CAPELET_CACHE", str(tmp_path))
    monkeypatch.setattr("capelet.encoders.export._EXACT", 1.1)
    encoder = load(str(tiny_folder), "auto")
    assert encoder.backend == "onnx"
    with pytest.warns(UserWarning, match="runs on torch"):
        encoder.encode(["a dog"])
    assert encoder.backend == "torch"
    monkeypatch.undo()
    monkeypatch.setenv("CAPELET_CACHE", str(tmp_path))
    with pytest.raises(EncoderError, match="cannot run on the back-end 'onnx'"):
        load(str(tiny_folder), "onnx").encode(["a dog"])  # the refusal is remembered


def test_a_broken_graph_is_made_again(tiny_folder: Path, tmp_path: Path) -> None:
    good = export_folder(tiny_folder, "onnx")
    made = []

    def prepare() -> Path:
        made.append(tmp_path / "export")
        if not made[-1].exists():
            shutil.copytree(good, made[-1])
        return made[-1]

    before = OnnxEngine(prepare).encode(["a dog"], silent)
    (tmp_path / "export" / "model.onnx").write_bytes(b"not a graph")
    np.testing.assert_array_equal(OnnxEngine(prepare).encode(["a dog"], silent), before)
    assert len(made) == 3


def test_without_the_extra_the_back_end_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transformer, "_ONNX_PACKAGES", ("no_such_package",))
    assert load("minilm").backend == "torch"
    with pytest.raises(MissingExtra, match=r"capelet\[onnx\]"):
        load("minilm", "int8")


def test_loading_is_silent(tiny_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(str(tiny_folder), "torch").encode(["a dog"])
    assert capfd.readouterr() == ("", "")


def build_causal(folder: Path) -> Path:
    """A random GPT-2 of two layers whose tokenizer has no padding token, as GPT-2's has none."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2Model, PreTrainedTokenizerFast

    words = ["<|endoftext|>", "the", "dog", "was", "good", "cat"]
    tokenizer = Tokenizer(
        models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<|endoftext|>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    end = {"eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=24, **end).save_pretrained(
        folder
    )
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24}
    GPT2Model(GPT2Config(vocab_size=len(words), initializer_range=0.3, **sizes)).save_pretrained(
        folder
    )
    return folder


def test_a_model_without_a_padding_token_encodes_texts_of_any_length(tmp_path: Path) -> None:
    encoder = load(str(build_causal(tmp_path)), "torch")
    texts = ["the dog", "the dog was good the cat was good", "cat"]
    together = encoder.encode(texts)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    # What fills up the shorter ones has no part in their vectors.
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert np.abs(together[0] - together[2]).max() > 0.01
