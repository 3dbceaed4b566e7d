"""A file is whole or not there."""

from __future__ import annotations

import errno
import os
import pwd
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capelet import files
from capelet.errors import OutputError
from capelet.files import (
    DiskError,
    TemporaryFolder,
    cache_folder,
    check_writable,
    copy_whole,
    expand_user,
    inner_folder,
    onto_disk,
    private_folder,
    state_folder,
    sweep,
    writable_folder,
    write_first,
    write_whole,
)


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


def test_below_a_folder_that_may_not_be_looked_into_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may look everywhere, so the system's answers to anybody else are played here."""
    closed, stat_of, access = tmp_path / "closed", os.stat, os.access
    closed.mkdir()

    def refuse_stat(path: Any, **options: Any) -> os.stat_result:
        if closed in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat_of(path, **options)

    def refuse_access(path: Path, mode: int) -> bool:
        is_refused = closed in path.parents or (path == closed and mode != os.F_OK)
        return not is_refused and access(path, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", refuse_stat)
        patch.setattr(os, "access", refuse_access)
        with pytest.raises(OutputError, match=r"the state folder .* is not writable\); move it"):
            check_writable(closed / "deep" / "er", "the state folder", "move it")


# ---- whose folder it is --------------------------------------------------------------------------


def forget_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number nobody has written down."""

    def nobody(number: int) -> Any:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "CAPELET_CACHE", "CAPELET_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)


def test_a_user_without_a_home_has_a_cache_that_cannot_be_written_and_no_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    forget_home(monkeypatch)
    with pytest.raises(RuntimeError):
        Path.home()
    assert cache_folder() == Path("/.cache/capelet")
    assert state_folder() == Path("/.local/state/capelet")
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path / "mine"))
    assert state_folder() == tmp_path / "mine"
    # A folder of that name, wherever one stands, is not what was meant.
    monkeypatch.setenv("CAPELET_STATE", "~/state")
    with pytest.raises(OutputError, match="CAPELET_STATE is '~/state'"):
        state_folder()
    # Nothing to put in the place of `~`.
    assert expand_user("~/models") == Path("~/models")


def test_the_tilde_is_the_users_own_and_that_of_nobody_is_a_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CAPELET_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "capelet"
    assert expand_user("~/models") == tmp_path / "models"
    assert expand_user("~no-such-user-here/models") == Path("~no-such-user-here/models")
    with pytest.raises(RuntimeError):
        Path("~no-such-user-here/models").expanduser()


def test_nobody_else_asks_for_a_home() -> None:
    """`Path.expanduser` and `Path.home` raise where there is none."""
    source = Path(files.__file__).parent
    others = [
        path.name
        for path in source.rglob("*.py")
        if re.search(r"\.expanduser\(|Path\.home\(", path.read_text("utf-8"))
    ]
    assert others == ["files.py"]


# A process that is killed while it writes: it reports that its file is open, and waits.
WRITER = """
import sys, time
from pathlib import Path
from capelet.files import _begin
with _begin(Path(sys.argv[1]), 0o644) as stream:
    stream.write(b"half"); stream.flush(); print("open", flush=True); time.sleep(60)
"""


def test_what_a_killed_run_left_goes_with_the_next_write(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None and writer.stdout.readline() == b"open\n"
        (tmp_path / ".a.txt.mine").write_text("foreign")
        write_whole(target, "first")
        # The other process lives: its file is not ours to remove.
        assert len(list(tmp_path.glob(".a.txt.*.part"))) == 1
    finally:
        writer.kill()
        writer.communicate()
    write_whole(target, "second")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.txt.mine", "a.txt"]
    assert target.read_text() == "second"


def test_the_first_of_two_writers_wins_and_the_second_gets_its_content(tmp_path: Path) -> None:
    assert write_first(tmp_path / "key", b"one") == b"one"
    assert write_first(tmp_path / "key", b"two") == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600


# A process that owns a temporary folder and a half-written file; it waits to be killed.
OWNER = """
import sys, time
from pathlib import Path
from capelet.files import TemporaryFolder, _begin
folder = TemporaryFolder(Path(sys.argv[1]), "export")
(folder.path / "weights").write_text("x")
with _begin(Path(sys.argv[1]) / "a", 0o600) as stream:
    print("open", flush=True)
    if len(sys.argv) == 2:
        time.sleep(60)
"""


def test_a_sweep_takes_what_dead_processes_left_and_nothing_else(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, tmp_path], stdout=subprocess.PIPE)
    foreign = [".notes.part", "a.0123456789abcdef.part", ".b.0123456789abcdeg.part"]
    for name in foreign:
        (tmp_path / name).write_text("mine")
    (tmp_path / "precious").mkdir()
    link = tmp_path / ".link.0123456789abcdef.part"
    link.symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / ".fifo.0123456789abcdef.part")
    kept = sorted([*foreign, "precious", link.name, ".fifo.0123456789abcdef.part"])
    try:
        assert owner.stdout is not None and owner.stdout.readline() == b"open\n"
        sweep(tmp_path)
        # The owner lives.
        assert list(tmp_path.glob(".export.*.part/weights")) and list(tmp_path.glob(".a.*.part"))
    finally:
        owner.kill()
        owner.communicate()
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    sweep(tmp_path / "nowhere")


def test_a_temporary_folder_goes_with_its_object_and_its_process(tmp_path: Path) -> None:
    with TemporaryFolder(tmp_path, "a") as folder:
        (folder / "x").write_text("x")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []
    copy = TemporaryFolder(tmp_path, "b")
    child = os.fork()
    if child == 0:
        # A fork has the object too, and must not take the folder away from its parent.
        copy.remove()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0 and copy.path.is_dir()
    copy.remove()
    copy.remove()
    assert list(tmp_path.iterdir()) == []
    subprocess.run([sys.executable, "-c", OWNER, tmp_path, "ends"], check=True, capture_output=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_umask_narrows_and_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("as it was")
    (tmp_path / "a").symlink_to(tmp_path / "precious")
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", "x")
        copy_whole(tmp_path / "a", tmp_path / "b", 0o666)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).lstat().st_mode) for name in "ab"]
    assert modes == [0o640, 0o640] and (tmp_path / "precious").read_text() == "as it was"


def test_a_link_is_no_inner_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="is a link to another place"):
        inner_folder(tmp_path, "link")
    assert inner_folder(tmp_path, "new").is_dir()


def test_a_full_disk_is_named_by_the_file_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskError, match=r"a.txt' \(No space left on device\); make room"):
        write_whole(tmp_path / "a.txt", "x")
    with (
        pytest.raises(DiskError, match=r"whole' \(No space left on device\); wait$"),
        onto_disk(tmp_path / "whole", "wait"),
    ):
        write_whole(tmp_path / "a.txt", "x")
    assert list(tmp_path.iterdir()) == []
