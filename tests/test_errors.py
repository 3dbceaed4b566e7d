"""A fault is told by its kind and by the last line of the package on its way, never by words."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from capelet.errors import describe_fault, did_you_mean


@pytest.mark.parametrize("folder", ["capelet", "a b/capelet/tests", "ü/src/capelet"])
def test_a_file_below_a_folder_of_our_name_is_not_ours(tmp_path: Path, folder: str) -> None:
    script = tmp_path / folder / "errors.py"
    script.parent.mkdir(parents=True)
    script.write_text("raise ValueError('the text was: my secret diary')\n", "utf-8")
    with pytest.raises(ValueError) as caught:
        runpy.run_path(str(script))
    assert describe_fault(caught.value) == "ValueError"


def test_the_last_line_of_the_package_is_named_also_where_others_raise() -> None:
    """The control: the package calls what fails, which lies in this file."""

    def names() -> Iterator[str]:
        raise KeyError("my secret diary")
        yield "never"

    with pytest.raises(KeyError) as caught:
        did_you_mean("x", names())
    assert re.fullmatch(r"KeyError at errors\.py:\d+", describe_fault(caught.value))


def test_an_error_that_nobody_raised_has_no_place() -> None:
    assert describe_fault(ValueError("my secret diary")) == "ValueError"
