"""Scripts outside the package, run as a user would run them but in this process."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def scripts_in(folder: str) -> list[str]:
    """The files of a folder that can be run; the others are imported by them."""
    files = sorted((ROOT / folder).glob("*.py"))
    return [path.name for path in files if "__main__" in path.read_text("utf-8")]


def run_script(folder: str, name: str, *arguments: object) -> None:
    """`python FOLDER/NAME ARGUMENTS`, without the seconds that a new process needs to begin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / folder))
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(ROOT / folder / name), run_name="__main__")
