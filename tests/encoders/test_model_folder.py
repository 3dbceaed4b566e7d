"""One format for everything that was learnt: whole, unchanged, inside its folder, the owner's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from capelet.encoders.dual import DualEncoder, save_dual
from capelet.encoders.dual_networks import build
from capelet.encoders.model_folder import (
    AUTO_ENCODER,
    DUAL_ENCODER,
    FORMAT,
    KINDS,
    LANGUAGE_MODEL,
    MANIFEST,
    kind_of,
    open_folder,
    write_folder,
)
from capelet.errors import EncoderError, FolderError, OutputError
from capelet.language.folders import LanguageModel
from capelet.language.model import build as build_language
from capelet.language.vocabulary import Vocabulary

FILES = {"weights.safetensors": b"weights", "words.json": '{"words": ["a"]}', "in/side.json": "{}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "model", AUTO_ENCODER, FILES)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def change_manifest(folder: Path, **changes: Any) -> None:
    path = folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_folder_comes_back_with_what_was_written(folder: Path) -> None:
    opened = open_folder(folder, AUTO_ENCODER)
    opened.check()
    assert opened.read("weights.safetensors") == b"weights"
    assert opened.read_json("words.json") == {"words": ["a"]}
    assert kind_of(folder) == AUTO_ENCODER and kind_of(folder.parent) is None
    listed = json.loads((folder / MANIFEST).read_text())
    assert listed["format"] == FORMAT and set(listed["files"]) == set(FILES)
    assert listed["files"]["weights.safetensors"] == hashlib.sha256(b"weights").hexdigest()


def test_every_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir(mode=0o755)
    source = tmp_path / "copied.json"
    source.write_text("{}")
    source.chmod(0o644)
    folder = write_folder(tmp_path / "model", AUTO_ENCODER, {**FILES, "copied.json": source})
    for path in (folder, *folder.rglob("*")):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert mode(source) == 0o644


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_or_changed_file_is_refused(folder: Path, name: str) -> None:
    opened = open_folder(folder, AUTO_ENCODER)
    (folder / name).write_text("other")
    for attempt in (opened.check, lambda: opened.read(name)):
        with pytest.raises(FolderError, match="was changed after it was written"):
            attempt()
    (folder / name).unlink()
    for attempt in (opened.check, lambda: opened.read(name)):
        with pytest.raises(FolderError, match="needs its whole folder"):
            attempt()


def test_a_file_that_is_not_listed_is_never_read(folder: Path) -> None:
    (folder / "more.json").write_text("{}")
    with pytest.raises(FolderError, match="not in the manifest"):
        open_folder(folder, AUTO_ENCODER).read("more.json")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": FORMAT - 1}, "has format 0, and this version reads 1"),
        ({"format": FORMAT + 1}, "has format 2, and this version reads 1"),
        ({"format": "new"}, "is broken"),
        ({"files": ["weights.safetensors"]}, "is broken"),
        ({"kind": "something"}, "is not an auto-encoder"),
        ({"kind": DUAL_ENCODER}, r"is not an auto-encoder.*\(it is a dual encoder\)"),
        ({"files": {"../outside.json": "0"}}, "lies outside"),
        ({"files": {"/etc/hostname": "0"}}, "lies outside"),
        ({"files": {"in\\..\\..\\outside.json": "0"}}, "lies outside"),
        ({"files": {"weights.bin": "0"}}, "a pickle"),
        ({"files": {"weights.PKL": "0"}}, "a pickle"),
    ],
)
def test_a_manifest_that_does_not_hold_is_refused(
    folder: Path, changes: dict[str, Any], sentence: str
) -> None:
    change_manifest(folder, **changes)
    with pytest.raises(FolderError, match=sentence):
        open_folder(folder, AUTO_ENCODER)


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_bytes((folder / "words.json").read_bytes())
    (folder / "words.json").unlink()
    (folder / "words.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(FolderError, match="lies outside"):
        open_folder(folder, AUTO_ENCODER)


def test_a_pickle_is_not_written_either(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="a pickle"):
        write_folder(tmp_path / "model", AUTO_ENCODER, {"weights.pt": b""})
    assert not (tmp_path / "model" / MANIFEST).exists()


def test_a_folder_written_again_keeps_nothing_of_the_last_model(folder: Path) -> None:
    write_folder(folder, DUAL_ENCODER, {"words.json": "{}"})
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == [
        MANIFEST,
        "words.json",
    ]
    assert kind_of(folder) == DUAL_ENCODER


def test_a_folder_left_half_written_is_none(folder: Path) -> None:
    class Broken(dict[str, bytes]):
        def items(self) -> Any:
            yield "weights.safetensors", b"new"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(folder, AUTO_ENCODER, Broken())
    with pytest.raises(FolderError):
        open_folder(folder, AUTO_ENCODER)


def test_a_folder_inside_another_is_covered_by_the_outer_manifest(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    write_folder(outer / "inner", AUTO_ENCODER, FILES)
    write_folder(outer, DUAL_ENCODER, {"words.json": "{}"}, ["inner"])
    opened = open_folder(outer, DUAL_ENCODER)
    assert opened.folder("inner", AUTO_ENCODER).read("weights.safetensors") == b"weights"
    write_folder(outer / "inner", AUTO_ENCODER, {**FILES, "weights.safetensors": b"other"})
    for attempt in (opened.check, lambda: opened.folder("inner", AUTO_ENCODER)):
        with pytest.raises(FolderError, match=r"'inner/manifest.json' .* was changed"):
            attempt()


def test_every_kind_says_what_it_is_and_both_errors_catch_it(tmp_path: Path) -> None:
    for kind, sentence in KINDS.items():
        with pytest.raises(EncoderError, match="is not " + sentence.partition(":")[0]):
            open_folder(tmp_path, kind)
        with pytest.raises(OutputError):
            open_folder(tmp_path, kind)


# ---- a folder whose manifest was taken away ------------------------------------------------------


def hash_inside(folder: Path, description: str, weights: str) -> None:
    """Take the manifest away, and put a hash of the weights where no manifest is needed."""
    (folder / MANIFEST).unlink()
    path = folder / description
    digest = hashlib.sha256((folder / weights).read_bytes()).hexdigest()
    path.write_text(json.dumps({"schema": 1, "weights": digest, **json.loads(path.read_text())}))


def test_a_dual_encoder_without_its_manifest_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = build("lstm", 5, 8, 1, 4).eval()
    folder = save_dual(tmp_path / "dual", network, ["<pad>", "<unk>", "a", "b", "c"], 6, {})
    DualEncoder(str(folder)).encode(["a b", "c"])  # the control
    hash_inside(folder, "dual.json", "dual.safetensors")
    assert kind_of(folder) == DUAL_ENCODER  # known as what it was, and by that refused
    with pytest.raises(EncoderError, match=r"manifest .* is missing"):
        DualEncoder(str(folder))


def language_model() -> LanguageModel:
    words = Vocabulary.of(["one small text", "one more text"], 4)
    network = build_language("lstm", len(words), 8, 1, 4, 0)
    return LanguageModel(network, words, training={"seed": 0})


def test_a_language_model_without_its_manifest_is_refused(tmp_path: Path) -> None:
    folder = language_model().save(tmp_path / "model")
    assert LanguageModel.load(folder).training == {"seed": 0}  # the control
    hash_inside(folder, "model.json", "model.safetensors")
    with pytest.raises(OutputError, match=r"manifest .* is missing"):
        LanguageModel.load(folder)


def test_a_changed_promise_of_a_language_model_is_refused(tmp_path: Path) -> None:
    folder = language_model().save(tmp_path / "model")
    path = folder / "model.json"
    assert kind_of(folder) == LANGUAGE_MODEL and LanguageModel.load(folder).canaries == ()
    path.write_text(path.read_text().replace("no guarantee", "a guarantee"))
    with pytest.raises(OutputError, match="was changed after"):
        LanguageModel.load(folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(OutputError, match="is missing"):
        LanguageModel.load(folder)
