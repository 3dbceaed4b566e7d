"""A store has whole cells or none, for its owner only, under names that tell nobody."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.errors import OutputError
from capelet.findings import Finding, Findings
from capelet.studies.cell import Cell, Measurement, VictimGuesses
from capelet.studies.store import ABOUT, Store


def cell(seed: int = 0, **inputs: Any) -> Cell:
    values = {"corpus": "tiny", "seed": seed, "digests": {"corpus": "abc"}, **inputs}
    return Cell("audit", 1, values, {})


def measurement(value: float = 0.7, rows: tuple[int, ...] = (3, 1, 8)) -> Measurement:
    count = len(rows)
    guesses = VictimGuesses(
        "attribute-inference",
        "gender",
        np.array(rows),
        np.array(rows) // 2,
        np.zeros(count, dtype=np.int16),
        np.arange(count, dtype=np.int16),
    )
    rows_of = (Finding("utility", "topic", "accuracy", value),)
    return Measurement(Findings(rows_of), (guesses,))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    first = cell()
    assert first.key not in store
    store.write(first, measurement(), 1.5)
    again = Store(tmp_path / "store")
    assert first.key in again and list(again.all_keys()) == [first.key]
    assert again.read(first.key).value(kind="utility") == 0.7
    assert again.meta(first.key).seconds == 1.5
    assert again.meta(first.key).identity["inputs"]["corpus"] == "tiny"


def test_a_renamed_split_finds_the_cells_that_were_stored_before() -> None:
    """The digest is that of a cell of `auto`, by author, else balanced, as it was stored once."""
    known = "cb28d6a24de00ceefda6a0a8fe0f36debe6e7e08a02711d8168fe9351d888531"
    assert cell(split="balanced").key == known
    others = {cell(split=kind).key for kind in ("auto", "random", "by_author", "keyed")}
    assert known not in others and len(others) == 4


def test_the_first_writer_wins(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "store"), Store(tmp_path / "store")
    store.write(cell(), measurement(0.7), 1.0)
    other.write(cell(), measurement(0.9), 1.0)
    assert store.read(cell().key).value(kind="utility") == 0.7
    assert len(list((tmp_path / "store" / "cells").iterdir())) == 1


def test_all_of_it_is_for_the_owner_only(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.write(cell(), measurement(), 1.0)
    store.write_failure(cell(1), "no memory", 1.0)
    for path in (tmp_path / "store").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_guesses_have_the_same_pseudonyms_in_all_cells_and_no_row_numbers(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.write(cell(0), measurement(rows=(3, 1, 8)), 1.0)
    store.write(cell(1), measurement(rows=(8, 5, 3)), 1.0)
    other_corpus = cell(0, digests={"corpus": "xyz"})
    store.write(other_corpus, measurement(rows=(3, 1, 8)), 1.0)
    tables = [store.guesses(item.key).to_pydict() for item in (cell(0), cell(1), other_corpus)]
    names = [set(table["victim"]) for table in tables]
    assert len(names[0] & names[1]) == 2 and not names[0] & names[2]
    # The order is that of the pseudonyms, which is random, and not that of the rows.
    assert tables[0]["victim"] == sorted(tables[0]["victim"])
    guess_of = dict(zip(tables[0]["victim"], tables[0]["guess"], strict=True))
    second = dict(zip(tables[1]["victim"], tables[1]["guess"], strict=True))
    shared = names[0] & names[1]
    assert {(guess_of[name], second[name]) for name in shared} == {(0, 2), (2, 0)}


def test_without_the_key_a_pseudonym_cannot_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the store and the corpus, and not the state folder, cannot number the rows."""
    store = Store(tmp_path / "store")
    own = store.pseudonyms("corpus", "row", [0, 1, 2])
    assert own == Store(tmp_path / "store").pseudonyms("corpus", "row", [0, 1, 2])
    about = json.loads((tmp_path / "store" / ABOUT).read_text())
    thief = Store(tmp_path / "other")
    thief._salt = about["salt"]
    assert thief.pseudonyms("corpus", "row", [0]) == own[:1]  # the control: the same user
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path / "state"))
    assert not {*thief.pseudonyms("corpus", "row", list(range(200)))} & {*own}
    with pytest.raises(OutputError, match="another user or machine"):
        Store(tmp_path / "store")


def test_a_store_of_another_format_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "store")
    path = tmp_path / "store" / ABOUT
    about = json.loads(path.read_text())
    path.write_text(json.dumps({**about, "format": 2}))
    with pytest.raises(OutputError, match="format 2, this version reads 1"):
        Store(tmp_path / "store")
    path.write_text("[]")
    with pytest.raises(OutputError, match="not the account of a store"):
        Store(tmp_path / "store")


@pytest.mark.parametrize("failing", ["findings.json", "guesses.parquet", "meta.json"])
def test_a_disk_that_fills_ends_in_a_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    from capelet.studies import store as module

    store = Store(tmp_path / "store")
    store.write(cell(0), measurement(), 1.0)
    write = module.write_whole

    def fill(path: Path, *content: Any, **options: Any) -> None:
        if path.name == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, *content, **options)

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_whole", fill)
        with pytest.raises(OutputError, match="No space left"):
            store.write(cell(1), measurement(), 1.0)
    assert list(store.all_keys()) == [cell(0).key]
    assert [path.name for path in (tmp_path / "store" / "cells").iterdir()] == [cell(0).key]
    # With room again, the same cell is written.
    store.write(cell(1), measurement(), 1.0)
    assert cell(1).key in store


def test_what_a_killed_run_left_is_swept_by_the_next(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    rest = tmp_path / "store" / "cells" / f".{cell().key}.0123456789abcdef.part"
    rest.mkdir()
    (rest / "findings.json").write_text("{")
    assert cell().key not in store and list(store.all_keys()) == []
    assert store.claim(cell().key)
    store.write(cell(), measurement(), 1.0)
    assert not rest.exists() and cell().key in store
    store.close()


def test_failures_are_kept_until_the_cell_is_there(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert store.failure(cell().key) is None
    store.write_failure(cell(), "the memory was not enough", 2.0)
    assert store.failure(cell().key) == "the memory was not enough"
    store.write(cell(), measurement(), 1.0)
    assert store.failure(cell().key) is None


def _claim_in(folder: str, key: str, pipe: Any) -> None:
    store = Store(folder)
    pipe.send(store.claim(key))
    pipe.recv()
    os._exit(1)  # as a kill: nothing is given back


@pytest.fixture
def other_process() -> Callable[[Path, str], Any]:
    def begin(folder: Path, key: str) -> Any:
        context = multiprocessing.get_context("spawn")
        pipe, other = context.Pipe()
        process = context.Process(target=_claim_in, args=(str(folder), key, other))
        process.start()
        return pipe, process

    return begin


def test_a_claim_is_of_one_process_until_it_ends(
    tmp_path: Path, other_process: Callable[[Path, str], Any]
) -> None:
    store = Store(tmp_path / "store")
    pipe, process = other_process(tmp_path / "store", "key")
    assert pipe.recv() is True
    assert not store.claim("key") and store.is_claimed("key")
    assert store.claim("other")  # the control
    # Killed between the writing of its cell and the end of its claim: nobody would claim it again.
    (tmp_path / "store" / "claims" / "left").touch()
    store.sweep_claims()
    names = {path.name for path in (tmp_path / "store" / "claims").iterdir()}
    assert names == {"key", "other"} and not store.claim("key")
    pipe.send("end")
    process.join()
    assert not store.is_claimed("key") and store.claim("key")
    store.close()
    assert not list((tmp_path / "store" / "claims").iterdir())
