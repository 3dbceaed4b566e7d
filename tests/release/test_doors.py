"""Every command takes a private encoder through its manifest: an edited ε passes none of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capelet.cli import app
from capelet.mechanisms import Laplace
from capelet.release import PrivateEncoder
from capelet.release.maps import Map, affine
from terminal import CliRunner


@pytest.fixture
def data(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    rows = list(random.normal(size=(200, 4)).astype(np.float32))
    path = tmp_path / "vectors.parquet"
    pq.write_table(pa.table({"v": rows, "coin": ["a", "b"] * 100}), path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    frozen = Map((affine(np.eye(4), np.zeros(4)),))
    return PrivateEncoder(frozen, Laplace(8.0)).save(tmp_path / "private")


def commands(data: Path, recipe: Path, out: Path) -> dict[str, list[str]]:
    return {
        "encode": ["encode", str(data), str(out / "out.parquet"), "--vectors", "v"],
        "verify": ["verify", "--samples", "2000"],
        "audit": [
            *["audit", str(data), "--vectors", "v", "--private", "coin", "--out", str(out / "run")],
            *["--seeds", "1", "--attackers", "logistic"],
        ],
    }


@pytest.mark.parametrize("inside", ["", "recipe.toml"])
@pytest.mark.parametrize("command", ["encode", "verify", "audit"])
def test_an_edited_epsilon_is_refused(
    data: Path, folder: Path, tmp_path: Path, command: str, inside: str
) -> None:
    (tmp_path / "out").mkdir()
    words = [*commands(data, folder, tmp_path / "out")[command], "--recipe", str(folder / inside)]
    if command != "audit":  # the control, which takes an audit too long to repeat
        assert CliRunner().invoke(app, words).exit_code == 0
        (tmp_path / "out" / "out.parquet").unlink(missing_ok=True)
    path = folder / "recipe.toml"
    path.write_text(path.read_text().replace("epsilon = 8.0", "epsilon = 1000.0"))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and "'recipe.toml'" in done.stderr
    assert "was changed after it was written" in done.stderr
    assert not list((tmp_path / "out").iterdir())  # nothing was released


def test_the_audit_of_a_whole_folder_runs(data: Path, folder: Path, tmp_path: Path) -> None:
    """The control of the audit above."""
    words = [*commands(data, folder, tmp_path)["audit"], "--recipe", str(folder)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
