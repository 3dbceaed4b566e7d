"""`capelet encode` of many files: options of engines, one sentence for what does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capelet.cli import app
from terminal import CliRunner


def call(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(item) for item in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(3):
        vectors = list(random.normal(size=(5, 4)).astype(np.float32))
        table = pa.table({"v": vectors, "who": [f"p{row}" for row in range(5)]})
        pq.write_table(table, folder / f"{number}.parquet")
    (tmp_path / "r.toml").write_text('[[steps]]\nstep = "laplace"\nepsilon = 2.0\n')
    return folder


def test_a_folder_is_released_by_workers_and_by_this_process(source: Path) -> None:
    place = source.parent
    base = ("--vectors", "v", "--recipe", place / "r.toml", "--subject", "who", "--json")
    base += ("--ledger", place / "l.db", "--budget", 100)
    for name, more in (("a", ()), ("b", ("--engine", "local", "--workers", 2))):
        code, text, _ = call("encode", f"file://{source}", place / name, *base, *more)
        summary = json.loads(text)
        assert code == 0 and (summary["rows"], summary["drawn"]) == (15, 15)
        assert pq.read_table(place / name)["row"].to_pylist() == list(range(15))
    # Again: nothing is drawn, and nobody is charged.
    code, text, _ = call("encode", f"file://{source}", place / "b", *base)
    assert code == 0 and json.loads(text)["drawn"] == 0
    code, text, _ = call("budgets", "show", place / "l.db", "--json")
    assert code == 0 and json.loads(text)["releases"] == 30


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--engine", "rai"), "did you mean 'ray'"),
        (("--address", "127.0.0.1:1"), "--address is of a Ray cluster; give --engine ray"),
        (("--workers", "0"), "--workers is 0; it must be at least 1"),
        (("--encoding", "latin-1"), "a folder is of Parquet"),
    ],
)
def test_options_that_do_not_fit(source: Path, options: tuple[str, ...], sentence: str) -> None:
    place = source.parent
    base = ("--vectors", "v", "--recipe", place / "r.toml")
    code, _, error = call("encode", source, place / "out", *base, *options)
    assert code == 2 and sentence in error and len(error.strip().splitlines()) == 1
    assert not (place / "out").exists() and not (place / ".out.parts").exists()


def test_no_cluster_at_the_address_is_said_and_ray_is_not_asked(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    calls: list[object] = []
    monkeypatch.setattr(ray, "init", lambda **options: calls.append(options))
    place = source.parent
    engine = ("--engine", "ray", "--address", "127.0.0.1:1")
    code, _, error = call(
        "encode", source, place / "out", "--vectors", "v", "--recipe", place / "r.toml", *engine
    )
    assert code == 2 and "there is no Ray cluster at '127.0.0.1:1'" in error
    assert calls == []


def test_an_engine_for_one_file_and_an_empty_folder(source: Path) -> None:
    place = source.parent
    base = ("--vectors", "v", "--recipe", place / "r.toml")
    code, _, error = call("encode", source / "0.parquet", place / "o", *base, "--workers", 2)
    assert code == 2 and "are for a folder of Parquet files" in error
    (place / "empty").mkdir()
    code, _, error = call("encode", place / "empty", place / "o", *base)
    assert code == 2 and "there is no Parquet file" in error
