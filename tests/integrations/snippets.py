"""The examples of a page, to be run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import capelet
from documentation import DOCS, sections

PAGE = DOCS / "how-to/frameworks.md"
BASE = "The private encoder"
# Programs in environments of others find this project, and behind their own what it needs.
PATHS = f"""
import os, sys
sys.path.insert(0, {str(Path(capelet.__file__).parents[1])!r})
sys.path.append({sysconfig.get_path("purelib")!r})
os.chdir(sys.argv[1])
"""


def snippet(title: str, level: int = 2) -> str:
    """The Python example under a heading."""
    body = sections(PAGE, level)[title]
    (code,) = re.findall(r"^```python\n(.*?)^```$", body, re.DOTALL | re.MULTILINE)
    return str(code)


def run_here(code: str, folder: Path) -> None:
    """Run an example in a process of its own, with the packages of this one."""
    result = subprocess.run(
        [sys.executable, "-c", PATHS + code, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
