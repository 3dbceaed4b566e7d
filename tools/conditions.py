"""README's two commands in fresh clones, under the conditions that other people's machines have.

    python tools/conditions.py --list
    python tools/conditions.py --out DIR [--only NAME,NAME] [--keep]

Each run clones the last commit into a folder of its own, with an environment and a cache of its
own, and calls `make test` and `make demo`, as the user and with the settings that it names. What
they print goes to `DIR/NAME.log`, one row for each run to `DIR/conditions.md`. A run takes some
twenty minutes on two cores, and must begin as root where it goes on as somebody else.
"""

from __future__ import annotations

import argparse
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Conditions:
    """Where a clone lies, who runs it, and what its environment says."""

    folder: str
    user: str = "root"
    home: str = "own"
    """`own`: a new and empty one; `closed`: one that nobody may write to."""
    umask: int = 0o022
    workers: str = "2"
    settings: Mapping[str, str] = field(default_factory=dict)
    is_shuffled: bool = False
    """In an order that changes with every run (`pytest-randomly`, which it installs)."""

    def describe(self) -> str:
        """All of it in a line."""
        words = [f"in `{self.folder}`", self.user, f"umask {self.umask:03o}", f"-n {self.workers}"]
        words += ["`HOME` not writable"] if self.home == "closed" else []
        words += [f"`{name}={value}`" for name, value in self.settings.items()]
        words += ["random order"] if self.is_shuffled else []
        return ", ".join(words)


RUNS: dict[str, Conditions] = {
    "called-capelet": Conditions("capelet", workers="4", settings={"PYTHONHASHSEED": "0"}),
    "a-blank": Conditions(
        "a b", user="nobody", home="closed", umask=0o077, settings={"LANG": "C", "LC_ALL": "C"}
    ),
    "another-letter": Conditions(
        "ü", umask=0o000, settings={"TZ": "Asia/Kolkata", "PYTHONHASHSEED": "1"}
    ),
    "below-capelet": Conditions(
        "capelet/work", user="nobody", settings={"PYTHONHASHSEED": "random"}, is_shuffled=True
    ),
    "one-worker": Conditions(
        "a b/capelet", umask=0o077, workers="1", settings={"PYTHONHASHSEED": "4294967295"}
    ),
    "old-processor": Conditions(
        "capelet",
        user="nobody",
        settings={
            "ATEN_CPU_CAPABILITY": "default",
            "MKL_CBWR": "COMPATIBLE",
            "OPENBLAS_CORETYPE": "Haswell",
            "TZ": "Asia/Kolkata",
        },
    ),
}
COMMANDS = {"make test": "test", "make demo": "demo"}
_SUMMARY = re.compile(r"^=*\s*(\d+ (?:failed|passed).*?)\s*=*$", re.MULTILINE)


def environment(conditions: Conditions, base: Path) -> dict[str, str]:
    """Nothing of ours but the path and where packages come from."""
    names = [name for name in os.environ if name.startswith(("PIP_", "UV_", "SSL_"))]
    own = {
        name: os.environ[name] for name in ("PATH", "CAPELET_DATA", *names) if name in os.environ
    }
    if conditions.user != "root":
        # Root's own programs are not for everybody.
        own["PATH"] = "/usr/local/bin:/usr/bin:/bin"
    own |= {"HOME": str(base / "home"), "TMPDIR": str(base / "tmp"), "WORKERS": conditions.workers}
    return {**own, **conditions.settings}


def prepare(conditions: Conditions, base: Path) -> Path:
    """The clone; folder, home and temporary folder belong to the user who goes on."""
    clone = base / conditions.folder
    for name in ("home", "tmp"):
        (base / name).mkdir()
    clone.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    number = pwd.getpwnam(conditions.user).pw_uid
    subprocess.run(["chown", "-R", str(number), base], check=True)
    base.chmod(0o755)
    if conditions.home == "closed":
        os.chown(base / "home", 0, 0)
        (base / "home").chmod(0o555)
    return clone


def run(name: str, conditions: Conditions, base: Path, log: Path) -> str:
    """One row of the table: the conditions, and how each command ended."""
    clone = prepare(conditions, base)
    account = pwd.getpwnam(conditions.user)
    cells = [f"`{name}`", conditions.describe()]
    steps = dict(COMMANDS)
    if conditions.is_shuffled:
        steps = {"make lint": "lint", **steps}
    with log.open("w", encoding="utf-8") as stream:
        for title, target in steps.items():
            start = time.monotonic()
            done = subprocess.run(
                ["make", target],
                cwd=clone,
                env=environment(conditions, base),
                user=account.pw_uid,
                group=account.pw_gid,
                extra_groups=[],
                umask=conditions.umask,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                check=False,
            )
            minutes = (time.monotonic() - start) / 60
            stream.write(f"$ make {target}\n{done.stdout}\nexit {done.returncode}\n")
            stream.flush()
            counts = _SUMMARY.findall(done.stdout)
            outcome = counts[-1] if counts else f"exit {done.returncode}"
            print(f"{name}: {title}: {outcome} ({minutes:.0f} min)", file=sys.stderr, flush=True)
            if title in COMMANDS:
                cells.append(outcome if done.returncode == 0 else f"**{outcome}**")
            else:
                # What the order is drawn by; one that is pinned would not be needed otherwise.
                pip = clone / ".venv/bin/python"
                subprocess.run([pip, "-m", "pip", "install", "-q", "pytest-randomly"], check=True)
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print the runs and do nothing")
    parser.add_argument("--out", type=Path, help="a folder for logs and the table")
    parser.add_argument("--only", help="names of runs, comma-separated")
    parser.add_argument("--keep", action="store_true", help="leave the clones where they are")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(RUNS)
    if options.list or options.out is None:
        for name in names:
            print(f"{name}: {RUNS[name].describe()}")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    worst = 0
    for name in names:
        base = Path(tempfile.mkdtemp(prefix="c-"))
        try:
            row = run(name, RUNS[name], base, options.out / f"{name}.log")
        finally:
            if not options.keep:
                shutil.rmtree(base, ignore_errors=True)
        worst |= "**" in row
        with (options.out / "conditions.md").open("a", encoding="utf-8") as stream:
            stream.write(row + "\n")
    return worst


if __name__ == "__main__":
    sys.exit(main())
