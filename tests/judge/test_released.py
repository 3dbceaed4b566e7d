"""Each check of a released file with a planted fault, and a clean file that passes all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from capelet.errors import OutputError
from capelet.judge import inspect_file
from capelet.judge.released import FILE_CHECKS, Inspection
from capelet.mechanisms import Laplace, RandomisedResponse
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.release import PrivateEncoder
from capelet.release.batch import encode
from capelet.release.recipe import METADATA

ROWS = 40
STEPS = [
    {"step": "encoder", "name": "minilm", "backend": "onnx", "fingerprint": "ab" * 32},
    {"step": "laplace", "epsilon": 1.0},
]
DESCRIPTION = {
    "guarantee": Guarantee(1.0).to_json(),
    "word_guarantee": None,
    "recipe": {"steps": STEPS},
}


def clean_table(**description: Any) -> pa.Table:
    vectors = np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
    columns = {
        "row": pa.array(range(ROWS)),
        "person": [f"p{n % 5}" for n in range(ROWS)],
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4),
    }
    content = json.dumps({**DESCRIPTION, **description})
    return pa.table(columns).replace_schema_metadata({METADATA: content})


def inspect(table: pa.Table, folder: Path) -> Inspection:
    pa.parquet.write_table(table, folder / "out.parquet")
    return inspect_file(folder / "out.parquet")


def with_vectors(table: pa.Table, rows: list[int]) -> pa.Table:
    """The same table with the vectors of these rows."""
    place = table.column_names.index("vector")
    return table.set_column(place, "vector", table["vector"].take(rows))


def repeat(*pairs: tuple[int, int]) -> list[int]:
    rows = list(range(ROWS))
    for to, of in pairs:
        rows[to] = of
    return rows


def learnt(**entries: Any) -> dict[str, Any]:
    promise = Guarantee(1.0, training=NONE).to_json()
    step = {"step": "map", "file": "map.safetensors", **entries}
    return {"guarantee": promise, "recipe": {"steps": [*STEPS, step]}}


def test_a_clean_file_passes_and_says_what_was_looked_at(tmp_path: Path) -> None:
    result = inspect(clean_table(), tmp_path)
    assert result.passed and not result.disclosures
    assert "tells nothing beside its vectors" in result.sentence
    assert "1-local" in result.subject and all(name in result.sentence for name in FILE_CHECKS)
    assert "not a proof" in result.sentence
    plain = json.loads(json.dumps(result.describe()))
    assert plain["passed"] is True and plain["checks"] == list(FILE_CHECKS)
    # A learnt map by a random name, with what its training texts are promised; a public table.
    assert inspect(clean_table(**learnt(id="c0ffee" * 8)), tmp_path).passed
    words = {"step": "words", "epsilon": 1.0, "fingerprint": "ab" * 32}
    assert inspect(clean_table(recipe={"steps": [words]}), tmp_path).passed


FAULTS: dict[str, tuple[str, Callable[[], pa.Table]]] = {
    "no metadata": ("guarantee", lambda: clean_table().replace_schema_metadata(None)),
    "metadata cut": (
        "guarantee",
        lambda: clean_table().replace_schema_metadata({METADATA: json.dumps(DESCRIPTION)[:40]}),
    ),
    "no promise": ("guarantee", lambda: clean_table(guarantee=NONE.to_json())),
    "a broken promise": (
        "guarantee",
        lambda: clean_table(guarantee=Guarantee(1.0, status="broken").to_json()),
    ),
    "learnt, and not a word of it": (
        "guarantee",
        lambda: clean_table(**{**learnt(id="x"), "guarantee": Guarantee(1.0).to_json()}),
    ),
    "a key of another program": (
        "metadata keys",
        lambda: clean_table().replace_schema_metadata(
            {METADATA: json.dumps(DESCRIPTION), b"pandas": b"{}"}
        ),
    ),
    "the hash of a map": ("digests", lambda: clean_table(**learnt(sha256="0f" * 32))),
    "a short hash of a map": ("digests", lambda: clean_table(**learnt(digest="0f0f"))),
    "the fingerprint of a learnt encoder": (
        "digests",
        lambda: clean_table(
            guarantee=Guarantee(1.0, training=NONE).to_json(),
            recipe={"steps": [{"step": "encoder", "name": "./encoder", "fingerprint": "x"}]},
        ),
    ),
    "a digest of the texts": ("digests", lambda: clean_table(about={"source": "0f" * 32})),
    "a side column": (
        "columns",
        lambda: clean_table().append_column("length", pa.array(range(ROWS))),
    ),
    "rows left out": ("row numbers", lambda: clean_table().slice(1)),
    "rows in another order": ("row numbers", lambda: clean_table().take(list(range(ROWS))[::-1])),
    "equal vectors of one person": ("repeats", lambda: with_vectors(clean_table(), repeat((5, 0)))),
    "equal vectors, nobody named": (
        "repeats",
        lambda: with_vectors(clean_table(), repeat((5, 0))).drop_columns(["person"]),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_planted_fault_is_told_by_its_check(name: str, tmp_path: Path) -> None:
    check, table = FAULTS[name]
    result = inspect(table(), tmp_path)
    assert not result.passed and result.sentence.endswith(".")
    assert check in {item.check for item in result.disclosures if item.is_fault}


def test_every_check_has_a_planted_fault() -> None:
    assert {check for check, _ in FAULTS.values()} == set(FILE_CHECKS)


def test_metadata_of_a_column_are_told(tmp_path: Path) -> None:
    table = clean_table()
    named = table.schema.field("person").with_metadata({"source": "mails.csv"})
    schema = table.schema.set(1, named)
    result = inspect(pa.table(table.columns, schema=schema), tmp_path)
    assert [item.check for item in result.disclosures] == ["metadata keys"]
    digest = {METADATA: json.dumps(DESCRIPTION), b"rows": b"of 0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f"}
    result = inspect(table.replace_schema_metadata(digest), tmp_path)
    assert {item.check for item in result.disclosures} == {"metadata keys", "digests"}


def test_equal_vectors_that_are_declared_are_told_and_no_fault(tmp_path: Path) -> None:
    table = with_vectors(clean_table(repeats="same"), repeat((5, 0), (6, 1)))
    result = inspect(table, tmp_path)
    assert result.passed and "Declared: 2 pairs of vectors of one subject, equal" in result.sentence
    assert not inspect(with_vectors(clean_table(repeats="fresh"), repeat((5, 0))), tmp_path).passed
    # Equal vectors of two people would be a wonder, and tell nothing of one person's texts.
    assert inspect(with_vectors(clean_table(), repeat((6, 0))), tmp_path).passed


def test_symbols_repeat_by_themselves(tmp_path: Path) -> None:
    """Four symbols for 400 rows: equal within a person as often as between; then more often."""
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    vectors = list(np.random.default_rng(0).normal(size=(400, 4)))
    people = [f"p{n % 40}" for n in range(400)]
    pa.parquet.write_table(pa.table({"v": vectors, "person": people}), source)
    encode(
        source, target, PrivateEncoder(RandomisedResponse(1.0, 4)), vectors="v", subject="person"
    )
    assert inspect_file(target).passed, inspect_file(target).sentence
    table = pa.parquet.read_table(target)
    alike = with_vectors(table, [n % 40 for n in range(400)])
    assert "repeats" in {item.check for item in inspect(alike, tmp_path).disclosures}


def test_what_encode_writes_passes(tmp_path: Path) -> None:
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    vectors = list(np.random.default_rng(0).normal(size=(30, 4)))
    people = [f"p{n % 3}" for n in range(30)]
    pa.parquet.write_table(pa.table({"v": vectors, "person": people}), source)
    for subject in (None, "person"):
        private = PrivateEncoder(Laplace(1.0))
        encode(source, target, private, vectors="v", subject=subject, overwrite=True)
        assert inspect_file(target).passed, inspect_file(target).sentence


def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no")
    with pytest.raises(OutputError, match="cannot be read"):
        inspect_file(tmp_path / "x.parquet")
    for path in (tmp_path / "none.parquet", tmp_path):
        with pytest.raises(OutputError, match="is not there, or is no file; give a file that"):
            inspect_file(path)
    pa.parquet.write_table(pa.table({"a": [1]}), tmp_path / "y.parquet")
    with pytest.raises(OutputError, match="no column 'vector' but a"):
        inspect_file(tmp_path / "y.parquet")
