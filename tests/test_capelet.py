"""The front door: every public name is there, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import capelet


@pytest.mark.parametrize("name", capelet.__all__)
def test_every_public_name_is_there_and_callable(name: str) -> None:
    assert callable(getattr(capelet, name)) and name in dir(capelet)


def test_unknown_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = capelet.nothing


def test_no_room_has_the_name_of_a_public_function() -> None:
    rooms = {path.stem for path in Path(capelet.__file__).parent.iterdir()}
    assert not rooms & set(capelet.__all__)


def test_importing_a_workflow_does_not_hide_its_function() -> None:
    code = "import capelet.workflows.audit as room, capelet; print(capelet.audit is room.audit)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_the_wheel_says_that_it_is_typed() -> None:
    """Without `py.typed` a type checker ignores our annotations (PEP 561)."""
    assert (files("capelet") / "py.typed").is_file()
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/capelet"]}  # the whole folder: nothing is left out
