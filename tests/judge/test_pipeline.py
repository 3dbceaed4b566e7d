"""The whole road: a clean one passes, and each fault planted into `encode` is told by its check."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from capelet.errors import CapeletError
from capelet.interfaces import Progress, silent
from capelet.judge import pipeline as module
from capelet.judge import verify_pipeline
from capelet.judge.pipeline import CASES, PLAN, ROAD_CHECKS, TARGET, WAYS
from capelet.mechanisms import Laplace, RandomisedResponse
from capelet.release import PrivateEncoder
from capelet.release.batch import encode
from capelet.release.recipe import METADATA

PLAIN, LEDGER, MEMORY, SHORT, SAME = WAYS
ANOTHER, BEFORE = CASES[:2]


class Letters:
    """An encoder of texts by hand: counts of a few letters, each text by itself."""

    name = "letters"
    dimension = 4
    fingerprint = "letters-1"
    backend = "hand"

    def encode(self, texts: Any, progress: Progress = silent) -> Any:
        return np.array([[1.0 + text.count(c) for c in "aeio"] for text in texts])

    def truncated(self, texts: Any) -> Any:
        return np.zeros(len(texts), dtype=bool)


class Padded(Letters):
    """The same, but one long text of a batch moves the last bits of all others."""

    def encode(self, texts: Any, progress: Progress = silent) -> Any:
        return super().encode(texts) * (1 + 1e-15 * max(len(text) for text in texts))


def rewrite(target: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pa.parquet.write_table(change(pa.parquet.read_table(target)), target)


def texts_of(source: Path) -> list[str]:
    return list(pa.parquet.read_table(source)["text"].to_pylist())


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Only these cases and ways, so that a test takes a moment."""

    def shorten(*pairs: Any) -> None:
        monkeypatch.setattr(module, "PLAN", pairs)

    return shorten


def private(encoder: Any = None) -> PrivateEncoder:
    return PrivateEncoder(encoder or Letters(), Laplace(1.0))


# ---- what is clean -------------------------------------------------------------------------------


def test_a_clean_road_passes_in_every_case_and_way() -> None:
    reports: list[tuple[str, int, int]] = []
    result = verify_pipeline(private(), progress=lambda *report: reports.append(report))
    assert result.passed, result.sentence
    # What `repeats="same"` shows is declared, and nothing else is told.
    assert {item.check for item in result.disclosures} == {"equality", "file: repeats"}
    assert all(SAME.name in i.sentence for i in result.disclosures if i.check == "equality")
    assert result.subject == "The road encoder → laplace"
    assert set(ROAD_CHECKS) < set(result.checks)
    assert reports[-1] == ("neighbouring files", len(PLAN), len(PLAN))


def test_vectors_and_symbols_go_the_same_road(plan: Callable[..., None]) -> None:
    plan((ANOTHER, PLAIN), (BEFORE, LEDGER), (CASES[3], PLAIN))
    assert verify_pipeline(PrivateEncoder(Laplace(1.0, dimension=3)), release=encode).passed
    # Symbols are equal by chance: which of them are equal is noise, and not compared.
    assert verify_pipeline(PrivateEncoder(RandomisedResponse(2.0, 3)), release=encode).passed


def test_without_a_guarantee_for_texts_no_ledger_is_asked_for(plan: Callable[..., None]) -> None:
    plan((ANOTHER, PLAIN), (ANOTHER, LEDGER))
    result = verify_pipeline(PrivateEncoder(Letters()), release=encode)
    assert not result.passed and "promise nothing" in result.sentence
    assert {item.check for item in result.disclosures} >= {"file: guarantee"}


# ---- planted faults ------------------------------------------------------------------------------


def same(*arguments: Any, **options: Any) -> Any:
    """Equal texts of one person get one vector, by hand, and nothing declares it."""
    summary = encode(*arguments, **options)
    source, target = arguments[:2]
    table = pa.parquet.read_table(source)
    keys = list(zip(*(table[name].to_pylist() for name in ("person", "text")), strict=True))
    rewrite(target, lambda out: _with_vectors_of(out, [keys.index(key) for key in keys]))
    return summary


def _with_vectors_of(table: pa.Table, rows: list[int]) -> pa.Table:
    place = table.column_names.index("vector")
    return table.set_column(place, "vector", table["vector"].take(rows))


def declared(*arguments: Any, **options: Any) -> Any:
    """The same, declared."""
    summary = same(*arguments, **options)

    def declare(table: pa.Table) -> pa.Table:
        content = json.loads(table.schema.metadata[METADATA])
        description = json.dumps({**content, "repeats": "same"})
        return table.replace_schema_metadata({METADATA: description})

    rewrite(arguments[1], declare)
    return summary


def keeps_a_length(source: Path, target: Path, *rest: Any, **options: Any) -> None:
    encode(source, target, *rest, **options)
    lengths = pa.array([len(text) for text in texts_of(source)])
    rewrite(target, lambda table: table.append_column("length", lengths))


def sorts(source: Path, target: Path, *rest: Any, **options: Any) -> None:
    encode(source, target, *rest, **options)
    order = np.argsort([len(text) for text in texts_of(source)], kind="stable")
    rewrite(target, lambda table: table.take(order))


def drops_repeats(source: Path, target: Path, *rest: Any, **options: Any) -> None:
    encode(source, target, *rest, **options)
    count = len(set(texts_of(source)))
    rewrite(target, lambda table: table.slice(0, count))


def tells_a_hash(source: Path, target: Path, *rest: Any, **options: Any) -> None:
    encode(source, target, *rest, **options)
    names = {METADATA: b"{}", b"source": str(hash(tuple(texts_of(source)))).encode()}
    rewrite(target, lambda table: table.replace_schema_metadata(names))


def changes_types(source: Path, target: Path, *rest: Any, **options: Any) -> None:
    encode(source, target, *rest, **options)
    kind = pa.int64() if any(len(text) > 200 for text in texts_of(source)) else pa.int32()
    rewrite(target, lambda table: table.set_column(0, "row", table["row"].cast(kind)))


def refuses(source: Path, target: Path, *rest: Any, **options: Any) -> None:
    if "a" in texts_of(source):
        raise CapeletError("a text is too short")
    encode(source, target, *rest, **options)


def groups_by_length(source: Path, target: Path, *rest: Any, **options: Any) -> None:
    encode(source, target, *rest, **options)
    table = pa.parquet.read_table(target)
    size = 5 if any(len(text) > 200 for text in texts_of(source)) else 17
    pa.parquet.write_table(table, target, row_group_size=size)


LENGTH = CASES[3]
FAULTS: dict[str, tuple[Any, Any, str]] = {
    "equal texts, equal vectors": (same, (BEFORE, PLAIN), "equality"),
    "a column of lengths": (keeps_a_length, (LENGTH, PLAIN), "side columns"),
    "rows sorted by length": (sorts, (LENGTH, PLAIN), "side columns"),
    "repeats left out": (drops_repeats, (BEFORE, PLAIN), "side columns"),
    "a hash of the texts": (tells_a_hash, (ANOTHER, PLAIN), "metadata"),
    "a type that follows the texts": (changes_types, (LENGTH, PLAIN), "schema"),
    "a refusal that follows the texts": (refuses, (LENGTH, PLAIN), "refusals"),
    "blocks that follow the texts": (groups_by_length, (LENGTH, PLAIN), "footer"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_planted_fault_is_told_by_its_check(name: str, plan: Callable[..., None]) -> None:
    release, where, check = FAULTS[name]
    plan(where)
    result = verify_pipeline(private(), release=release)
    assert not result.passed
    assert check in {item.check for item in result.disclosures if item.is_fault}, result.sentence
    assert where[0].name in result.sentence


def test_every_check_has_a_planted_fault() -> None:
    assert {check for _, _, check in FAULTS.values()} == set(ROAD_CHECKS)


def test_a_declared_equality_is_told_and_no_fault(plan: Callable[..., None]) -> None:
    plan((BEFORE, PLAIN))
    result = verify_pipeline(private(), release=declared)
    assert result.passed and "Declared:" in result.sentence
    assert {item.check for item in result.disclosures} == {"equality", "file: repeats"}


def test_a_memory_that_hands_out_old_vectors_is_told(plan: Callable[..., None]) -> None:
    """The second file holds what the ledger knows: an old vector says that the text is old."""
    memory: dict[tuple[str, str], Any] = {}

    def remembers(source: Path, target: Path, *rest: Any, **options: Any) -> None:
        encode(source, target, *rest, **options)
        table, ledger = pa.parquet.read_table(target), str(options.get("ledger"))
        names = [(ledger, text) for text in texts_of(source)]
        vectors = [
            memory.setdefault(name, row)
            for name, row in zip(names, table["vector"].to_pylist(), strict=True)
        ]
        column = pa.array(vectors, table["vector"].type)
        rewrite(
            target, lambda out: out.set_column(out.column_names.index("vector"), "vector", column)
        )

    old = module.Case("a text that was released before", lambda rows: rows[TARGET], CASES[0].second)
    plan((old, MEMORY))
    result = verify_pipeline(private(), release=remembers)
    assert "equality" in {item.check for item in result.disclosures}
    assert verify_pipeline(private(), release=encode).passed


def test_a_budget_that_equal_texts_do_not_use_up_is_told(plan: Callable[..., None]) -> None:
    def charges_once(source: Path, target: Path, *rest: Any, **options: Any) -> None:
        texts, limit = texts_of(source), options.pop("budget")
        if len(set(texts[::4])) > limit:
            raise CapeletError("the budget is too small")
        encode(source, target, *rest, **options)

    plan((BEFORE, SHORT))
    result = verify_pipeline(private(), release=charges_once)
    assert [item.check for item in result.disclosures] == ["refusals"]
    assert verify_pipeline(private(), release=encode).passed


def test_what_changes_from_run_to_run_is_noise(plan: Callable[..., None]) -> None:
    def names_at_random(source: Path, target: Path, *rest: Any, **options: Any) -> None:
        encode(source, target, *rest, **options)
        name = str(np.random.default_rng().integers(1 << 60)).encode()

        def add(table: pa.Table) -> pa.Table:
            return table.replace_schema_metadata({**table.schema.metadata, b"run": name})

        rewrite(target, add)

    plan((ANOTHER, PLAIN))
    result = verify_pipeline(private(), release=names_at_random)
    assert {item.check for item in result.disclosures} == {"file: metadata keys"}


def test_neighbours_that_move_before_the_noise_are_told(plan: Callable[..., None]) -> None:
    plan((ANOTHER, PLAIN))
    result = verify_pipeline(private(Padded()), release=encode)
    assert [item.check for item in result.disclosures] == [module.BATCH]
    assert "16 other rows of a batch change" in result.sentence
