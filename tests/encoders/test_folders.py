"""What is unsafe or unknown is refused with one sentence, before anything is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from capelet.encoders import load
from capelet.encoders.folders import content_hash, in_row_order, token_table
from capelet.errors import EncoderError, MissingExtra


def refusal(name: str, backend: str = "auto") -> str:
    with pytest.raises(EncoderError) as caught:
        load(name, backend)
    return str(caught.value)


def test_an_unknown_name_suggests_the_nearest() -> None:
    assert refusal("minlm") == "unknown encoder 'minlm'; did you mean 'minilm'?"
    assert "glove, minilm, mpnet, wordllama" in refusal("zzz")
    assert "did you mean 'onnx'?" in refusal("minilm", "onx")


def test_a_path_that_is_not_there_is_no_hub_id() -> None:
    assert "no encoder folder './models/x'" in refusal("./models/x")
    assert "no encoder folder '/a/b/c'" in refusal("/a/b/c")


def test_an_id_that_cannot_be_fetched_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise ConnectionError("https://somewhere/with/details")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(EncoderError, match="neither a folder here nor a model") as caught:
        load("nobody/no-model", "torch").encode(["a"])
    assert "somewhere" not in str(caught.value)


def test_of_a_hub_repository_only_harmless_files_are_fetched(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[str]] = {}

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked[name] = allow_patterns
        return str(tiny_folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert load("some/model", "torch").encode(["a dog"]).shape == (1, 32)
    assert asked == {"some/model": ["*.safetensors", "*.json", "*.txt", "*.model"]}


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "m.pkl", "m.ckpt"])
def test_a_pickle_only_folder_is_refused_before_it_is_read(
    tiny_folder: Path, tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    assert f"holds a pickle ({name})" in refusal(str(folder))
    assert not Path("pwned").exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "1_Dense/pytorch_model.BIN", "a/b/c.pkl"])
def test_a_pickle_beside_tensors_is_refused_at_any_depth(
    tiny_folder: Path, tmp_path: Path, name: str
) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    assert load(str(folder), "torch").encode(["a dog"]).shape == (1, 32)
    # Which of the two a loader takes is decided by names: tensors under another one are a decoy.
    shutil.copy(folder / "model.safetensors", folder / "decoy.safetensors")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    assert f"holds a pickle ({Path(name).name})" in refusal(str(folder))


def test_a_link_to_another_folder_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "pytorch_model.bin").write_bytes(b"x")
    (folder / "1_Dense").symlink_to(tmp_path / "elsewhere")
    assert "a link to another folder" in refusal(str(folder))


def test_a_pickled_module_behind_safe_weights_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    kinds = {"": "Transformer", "1_Dense": "Dense"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Dense").mkdir()
    (folder / "1_Dense" / "pytorch_model.bin").write_bytes(b"x")
    assert "holds a pickle (pytorch_model.bin)" in refusal(str(folder))


def test_a_folder_with_its_own_code_is_refused(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    module = {"idx": 0, "name": "0", "path": "", "type": "custom_code.Transformer"}
    (folder / "modules.json").write_text(json.dumps([module]))
    assert "its own code (custom_code.Transformer)" in refusal(str(folder))
    module = {"idx": 0, "name": "0", "path": "../..", "type": "sentence_transformers.models.Dense"}
    (folder / "modules.json").write_text(json.dumps([module]))
    assert "points outside its folder" in refusal(str(folder))
    (folder / "modules.json").write_text("{")
    assert "is no list of modules" in refusal(str(folder))


def test_a_folder_that_is_no_model_says_so(tmp_path: Path) -> None:
    assert "is no model folder" in refusal(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert "no weights as safetensors" in refusal(str(tmp_path))


def test_broken_weights_are_one_sentence(tiny_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    (folder / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(EncoderError, match="could not be loaded"):
        load(str(folder), "torch").encode(["a"])


def test_the_hash_ignores_what_does_not_decide_the_vectors(
    tiny_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_folder, tmp_path / "model"))
    before = content_hash(folder)
    (folder / "README.md").write_text("words")
    assert content_hash(folder) == before
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    assert content_hash(folder) != before


@pytest.mark.parametrize("name", ["wordllama", "glove"])
def test_static_encoders_name_their_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda package: None)
    with pytest.raises(MissingExtra, match=r"capelet\[words\]"):
        load(name)


def test_tokens_come_in_the_order_of_their_rows_and_those_without_one_are_left_out() -> None:
    table = np.arange(8.0).reshape(4, 2)
    tokens, rows = in_row_order({"late": 9, "b": 3, "a": 0}, table)
    assert tokens == ["a", "b"] and rows.tolist() == [[0, 1], [6, 7]]


def test_a_folder_without_a_token_table_says_what_to_do(tiny_folder: Path, tmp_path: Path) -> None:
    assert token_table(tiny_folder)[0][:2] == ["[PAD]", "[UNK]"]
    with pytest.raises(EncoderError, match=r"Vocabulary\.of"):
        token_table(tmp_path)
