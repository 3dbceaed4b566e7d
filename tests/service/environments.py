"""Programs of others in environments of their own: their pins are not ours, and ours not theirs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

# Kept between runs: an installation takes longer than all tests that use it.
FOLDER = Path(
    os.environ.get("CAPELET_TEST_CLIENTS", Path(tempfile.gettempdir()) / "capelet-clients")
)


def environment(package: str) -> Path:
    """The folder of programs of an environment that has this package; a skip where pip cannot."""
    programs = FOLDER / package / "bin"
    done = programs.parent / "installed"
    if not done.is_file():
        pip = [str(programs / "python"), "-m", "pip", "install", "--quiet", package]
        try:
            subprocess.run([sys.executable, "-m", "venv", str(programs.parent)], check=True)
            subprocess.run(pip, check=True, capture_output=True, timeout=600)
        except (OSError, subprocess.SubprocessError):
            pytest.skip(f"pip cannot install {package} here, so it is not tried")
        done.touch()
    return programs


def run_client(package: str, code: str, *arguments: object) -> Any:
    """What a program prints as JSON on its last line."""
    command = [str(environment(package) / "python"), "-c", code, *map(str, arguments)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, env=own)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])
