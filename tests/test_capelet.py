"""The front door: every public name is there, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import capelet


@pytest.mark.parametrize("name", capelet.__all__)
def test_every_public_name_is_there_and_callable(name: str) -> None:
    assert callable(getattr(capelet, name)) and name in dir(capelet)


def test_unknown_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = capelet.nothing


def test_a_room_does_not_hide_the_function_of_its_name() -> None:
    code = "import capelet.audit; from capelet.audit import audit; print(capelet.audit is audit)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
