"""A file is whole or not there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from capelet.errors import OutputError
from capelet.files import check_writable, private_folder, writable_folder, write_whole


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    write_whole(target, "old")
    with pytest.raises(TypeError):
        write_whole(target, 3)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        write_whole(target, "\ud800")
    assert target.read_text() == "old" and [item.name for item in tmp_path.iterdir()] == ["a.txt"]


def test_private_folders_are_for_their_owner(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "p")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_unwritable_places_are_said_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OutputError, match="cannot write to the output folder"):
            check_writable(place)
    with pytest.raises(OutputError, match="cannot write to the output folder"):
        writable_folder(tmp_path / "file" / "below")
    check_writable(tmp_path / "new" / "deep")
    assert not (tmp_path / "new").exists()
