"""Every benchmark still runs, at a size that proves nothing about speed."""

from __future__ import annotations

import json

import pytest

from capelet.data.datasets import is_available
from scripts import run_script, scripts_in

SIZES: dict[str, tuple[object, ...]] = {
    "attacks.py": ("--rows", 240, "--peer-texts", 8, "--seeds", 1),
    "audit.py": ("--rows", 200, 240, "--seeds", 1, "--repeat", 1),
    "encoding.py": ("--texts", 8, "--repeat", 1),
    "gateway.py": (
        *("--texts", 8, "--clients", 2, "--repeat", 1, "--requests", 20, "--releases", 20),
        *("--backends", "onnx"),
    ),
    "inversion.py": ("--vectors", 8, "--loop", 1, "--steps", 2),
    "language.py": ("--steps", 1),
    "noise.py": ("--rows", 20, "--texts", 4, "--repeat", 0),
    "rows.py": ("--rows", 20, "--texts", 20, "--repeat", 1),
    "store.py": ("--rows", 20, "--charges", 3, "--repeat", 1),
    "studies.py": ("--cells", 2, "--rows", 200),
    "training.py": ("--rows", 200, "--repeat", 1),
    "words.py": ("--words", 100, "--tokens", 32, "--repeat", 0),
}
NEEDS_NEWS = ("attacks.py", "encoding.py")


def test_every_benchmark_has_a_tiny_size() -> None:
    assert set(scripts_in("benchmarks")) == set(SIZES)


@pytest.mark.parametrize("name", scripts_in("benchmarks"))
def test_it_runs_and_ends_with_its_figures(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name in NEEDS_NEWS and not is_available("ag_entities"):
        pytest.skip("the set ag_entities is not here; CAPELET_DATA names the folder it lies in")
    run_script("benchmarks", name, *SIZES[name])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])
