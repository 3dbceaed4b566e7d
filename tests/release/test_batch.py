"""A file is released whole, in order and paid for once, however often the run is killed."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capelet.data.datasets import load
from capelet.errors import CapeletError, DataError, OutputError
from capelet.interfaces import Progress, silent
from capelet.ledger.budgets import Budget, BudgetError
from capelet.ledger.store import Ledger
from capelet.mechanisms import Gaussian, Laplace, WordDropout
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.release import PrivateEncoder, Release, partial_output
from capelet.release.batch import Summary, encode

WIDTH = 8


def numbers(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, WIDTH)).astype(np.float32)


def vectors_file(path: Path, rows: int, people: int = 7) -> Path:
    who = [f"p{row % people}" for row in range(rows)]
    pq.write_table(pa.table({"v": list(numbers(rows)), "who": who}), path)
    return path


def noise(epsilon: float = 2.0) -> PrivateEncoder:
    return PrivateEncoder(Laplace(epsilon=epsilon))


def spent(path: Path, who: str) -> float:
    with Ledger(path) as ledger:
        total = ledger.spent(who)
    return 0.0 if total is None else total.epsilon


def untouched(folder: Path, *names: str) -> bool:
    """Whether the folder holds these files and nothing else."""
    return sorted(item.name for item in folder.iterdir()) == sorted(names)


class Length:
    """An encoder of two coordinates: how long a text is, and a constant."""

    name, backend, dimension, fingerprint = "length", "none", 2, "0" * 64
    isolates_rows = True

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> np.ndarray:
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        return np.zeros(len(texts), dtype=bool)


class Plain:
    """A vector step with a promise and no noise, so that order can be seen; it counts its rows."""

    consumes = emits = "vectors"
    guarantee = Guarantee(epsilon=2.0)

    def __init__(self) -> None:
        self.rows = 0

    def describe(self) -> dict[str, Any]:
        return {"step": "plain"}

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.rows += len(batch)
        return batch


# ---- what comes out ------------------------------------------------------------------------------


def test_every_row_once_in_order_and_never_the_text(tmp_path: Path) -> None:
    source, target = vectors_file(tmp_path / "in.parquet", 1000), tmp_path / "out.parquet"
    told: list[tuple[str, int, int]] = []
    private = PrivateEncoder(Plain())
    summary = encode(
        source, target, private, vectors="v", subject="who", block=64,
        progress=lambda *step: told.append(step),
    )  # fmt: skip
    assert summary == Summary(target, 1000, WIDTH, 1000, 0, False, Guarantee(2.0))
    table = pq.read_table(target)
    assert table.column_names == ["row", "who", "vector"]
    assert table["row"].to_pylist() == list(range(1000))
    assert table["who"].to_pylist() == [f"p{row % 7}" for row in range(1000)]
    back = Release.load(target)
    np.testing.assert_array_equal(back.vectors, numbers(1000))
    assert back.guarantee == Guarantee(2.0) and back.recipe == private.recipe
    assert ("checking", 1000, 1000) in told and told[-1] == ("releasing", 1000, 1000)
    assert untouched(tmp_path, "in.parquet", "out.parquet")


def test_what_dropout_adds_for_each_word_is_told_and_kept(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": ["a good film", "a bad one"]}), tmp_path / "in.parquet")
    private = PrivateEncoder(WordDropout(0.5), "wordllama", Laplace(2.0))
    summary = encode(tmp_path / "in.parquet", tmp_path / "out.parquet", private, text="t")
    told = Release.load(tmp_path / "out.parquet").word_guarantee
    assert told == summary.word_guarantee == private.word_guarantee and told is not None
    assert told.epsilon < summary.guarantee.epsilon == 2.0
    assert summary.sentence().endswith(
        "also 1.43378-local differential privacy for each word (proven)"
    )


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv", "jsonl"])
@pytest.mark.parametrize("what", ["texts", "vectors"])
def test_kinds_of_files(tmp_path: Path, kind: str, what: str) -> None:
    rows = 300
    texts = [f'the text "{row}",\nin two lines' for row in range(rows)]
    vectors = numbers(rows).tolist()
    path = tmp_path / f"in.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"v": vectors, "t": texts}), path, row_group_size=70)
    elif kind == "jsonl":
        lines = [json.dumps({"v": v, "t": t}) for v, t in zip(vectors, texts, strict=True)]
        path.write_text("\n".join(lines) + "\n")
    else:
        table = pa.table({"v": [json.dumps(v) for v in vectors], "t": texts})
        options = pa.csv.WriteOptions(delimiter="\t" if kind == "tsv" else ",")
        pa.csv.write_csv(table, path, options)
    if what == "vectors":
        encode(path, tmp_path / "out.parquet", PrivateEncoder(Plain()), vectors="v", block=64)
        want = numbers(rows)
    else:
        private = PrivateEncoder("wordllama")
        assert encode(path, tmp_path / "out.parquet", private, text="t", block=64).guarantee == NONE
        want = private.release(texts).vectors
    np.testing.assert_allclose(Release.load(tmp_path / "out.parquet").vectors, want, atol=1e-6)
    assert b"in two lines" not in (tmp_path / "out.parquet").read_bytes()


# ---- charges -------------------------------------------------------------------------------------


def test_each_subject_is_charged_and_known_texts_are_free(tmp_path: Path) -> None:
    source, book = vectors_file(tmp_path / "in.parquet", 70), tmp_path / "ledger.db"
    asked = {"vectors": "v", "subject": "who", "ledger": book, "block": 16}
    same = {**asked, "repeats": "same"}
    first = encode(source, tmp_path / "1.parquet", noise(), budget=40, **same)
    assert (first.drawn, first.kept) == (70, 0) and spent(book, "p3") == 20.0
    again = encode(source, tmp_path / "2.parquet", noise(), **same)
    assert (again.drawn, again.kept) == (0, 70) and spent(book, "p3") == 20.0
    one, two = (Release.load(tmp_path / name).vectors for name in ("1.parquet", "2.parquet"))
    np.testing.assert_array_equal(one, two)
    fresh = encode(source, tmp_path / "3.parquet", noise(), **asked)
    assert fresh.drawn == 70 and spent(book, "p3") == 40.0
    assert not np.isclose(Release.load(tmp_path / "3.parquet").vectors, one).any(axis=1).all()
    with pytest.raises(BudgetError):  # the budget of the first run stays
        encode(source, tmp_path / "4.parquet", noise(1.0), **asked)


def test_repeats_within_a_file_cost_once_for_each_person(tmp_path: Path) -> None:
    """The same text in one block, in another block, and of another person."""
    rows = ["same", "same", "own", "same", "same"]
    people = ["ann", "ann", "ann", "ann", "bob"]
    pq.write_table(pa.table({"t": rows, "who": people}), tmp_path / "in.parquet")
    private = PrivateEncoder("wordllama", Laplace(epsilon=2))
    asked = {"text": "t", "subject": "who", "ledger": tmp_path / "l.db", "block": 3}
    summary = encode(
        tmp_path / "in.parquet", tmp_path / "out.parquet", private, budget=4.0, repeats="same",
        **asked,
    )  # fmt: skip
    assert (summary.drawn, summary.kept) == (3, 2)
    assert (spent(tmp_path / "l.db", "ann"), spent(tmp_path / "l.db", "bob")) == (4.0, 2.0)
    out = Release.load(tmp_path / "out.parquet").vectors
    np.testing.assert_array_equal(out[[1, 3]], out[[0, 0]])
    assert not (out[4] == out[0]).all() and not (out[2] == out[0]).all()
    with Ledger(tmp_path / "l.db") as ledger:
        ledger.raise_budget(Budget(12.0))
    again = encode(tmp_path / "in.parquet", tmp_path / "3.parquet", private, **asked)
    assert again.drawn == 5 and spent(tmp_path / "l.db", "ann") == 12.0


def test_a_budget_too_small_is_refused_before_anything_happens(tmp_path: Path) -> None:
    source, step = vectors_file(tmp_path / "in.parquet", 70), Plain()
    with pytest.raises(
        BudgetError, match=r"7 people.* 0, 1, 2, 3, 4 and those of 2 more; .*ε = 20"
    ):
        encode(
            source, tmp_path / "out.parquet", PrivateEncoder(step),
            vectors="v", subject="who", ledger=tmp_path / "ledger.db", budget=19, block=16,
        )  # fmt: skip
    assert step.rows == 0 and untouched(tmp_path, "in.parquet")


@pytest.mark.parametrize(
    ("options", "private", "sentence"),
    [
        ({"ledger": "l.db"}, noise(), "needs the column of the subjects"),
        ({"subject": "who", "budget": 3.0}, noise(), "needs a ledger"),
        ({"subject": "who", "repeats": "same"}, noise(), "needs a ledger"),
        ({"subject": "who", "anchor": "a.json"}, noise(), "needs a ledger"),
        ({"subject": "who", "ledger": "l.db", "repeats": "old"}, noise(), "'fresh' or 'same'"),
        ({"subject": "who", "ledger": "l.db", "budget": "much"}, noise(), "the budget is a str"),
        ({"subject": "who", "ledger": "l.db"}, PrivateEncoder(), "no guarantee"),
        ({"subject": "whom"}, noise(), "no column 'whom'; did you mean 'who'"),
        ({"subject": "row"}, noise(), "may not be called 'row'"),
        ({"text": "t"}, noise(), "begins with vectors"),
        ({"block": 0}, noise(), "block is 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, options: dict[str, Any], private: PrivateEncoder, sentence: str
) -> None:
    source = vectors_file(tmp_path / "in.parquet", 10)
    if "ledger" in options:
        options = {**options, "ledger": tmp_path / "l.db"}
    with pytest.raises(CapeletError, match=sentence):
        encode(source, tmp_path / "out.parquet", private, vectors="v", **options)
    assert untouched(tmp_path, "in.parquet")


# ---- bad rows ------------------------------------------------------------------------------------

GOOD = [0.5] * WIDTH


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"v": None, "who": "a"}, "row 90 .*no vector"),
        ({"v": [1.0, 2.0], "who": "a"}, "row 90 .*2 numbers, others 8"),
        ({"v": [float("nan"), *GOOD[1:]], "who": "a"}, "row 90 .*NaN"),
        ({"v": [1e300, *GOOD[1:]], "who": "a"}, "row 90 .*infinity"),
        ({"v": "secret", "who": "a"}, "row 90 .*no vector"),
        ({"v": GOOD, "who": None}, "row 90 .*'who' must name a subject.* empty"),
        ({"v": GOOD, "who": 1.5}, "row 90 .*'who' must name a subject"),
        ({"v": GOOD, "who": "\ud800"}, "row 90 .*'who' must name a subject"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_drawn(
    tmp_path: Path, bad: dict[str, Any], sentence: str
) -> None:
    rows = [{"v": GOOD, "who": row} for row in range(100)]
    rows[90] = bad
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    step = Plain()
    with pytest.raises(DataError, match=sentence) as error:
        encode(
            tmp_path / "in.jsonl", tmp_path / "out.parquet", PrivateEncoder(step), vectors="v",
            subject="who", ledger=tmp_path / "l.db", block=16,
        )  # fmt: skip
    assert "secret" not in str(error.value)
    assert step.rows == 0 and untouched(tmp_path, "in.jsonl")


@pytest.mark.parametrize("bad", [None, "", "  \n", 7])
def test_a_bad_text_is_named(tmp_path: Path, bad: object) -> None:
    rows = [{"t": "fine"}, {"t": bad}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(DataError, match="row 1 of the column 't' must be a text"):
        encode(tmp_path / "in.jsonl", tmp_path / "o.parquet", PrivateEncoder("wordllama"), text="t")
    assert untouched(tmp_path, "in.jsonl")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("in.csv", b"v,w\n", "no rows"),
        ("in.csv", b"v,w\n1,secret,3\n", "Row #2|Expected 2 columns"),
        ("in.jsonl", b'{"v": [1]}\nsecret\n', "line 2"),
        ("in.jsonl", b"", "no rows"),
        ("in.parquet", b"secret", "cannot be read"),
        ("in.txt", b"secret", "not a kind of file"),
    ],
)
def test_files_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes, sentence: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=sentence) as error:
        encode(tmp_path / name, tmp_path / "out.parquet", noise(), vectors="v")
    assert "secret" not in str(error.value) and untouched(tmp_path, name)


def test_a_width_that_the_mechanism_refuses_costs_nothing(tmp_path: Path) -> None:
    source = vectors_file(tmp_path / "in.parquet", 10)
    private = PrivateEncoder(Gaussian(epsilon=1, delta=1e-6, dimension=5))
    with pytest.raises(DataError, match="5 coordinates"):
        encode(
            source, tmp_path / "out.parquet", private,
            vectors="v", subject="who", ledger=tmp_path / "l.db", budget=Budget(9, 1e-3),
        )  # fmt: skip
    assert spent(tmp_path / "l.db", "p0") == 0 and untouched(tmp_path, "in.parquet", "l.db")


# ---- targets -------------------------------------------------------------------------------------


def test_a_target_that_is_there_is_kept_unless_told(tmp_path: Path) -> None:
    source, target = vectors_file(tmp_path / "in.parquet", 10), tmp_path / "out.parquet"
    target.write_bytes(b"mine")
    with pytest.raises(OutputError, match="overwrite="):
        encode(source, target, noise(), vectors="v")
    assert target.read_bytes() == b"mine" and untouched(tmp_path, "in.parquet", "out.parquet")
    assert encode(source, target, noise(), vectors="v", overwrite=True).rows == 10
    with pytest.raises(OutputError, match="is a folder"):
        encode(source, tmp_path, noise(), vectors="v", overwrite=True)


# ---- kills ---------------------------------------------------------------------------------------

NURSERY = """
import os, random, signal, sys, time
from pathlib import Path
from capelet.release.batch import encode
from capelet.release.partial_output import PartialOutput
from capelet.ledger.store import Ledger
from capelet.mechanisms import Laplace
from capelet.release import PrivateEncoder

folder, repeats = Path(sys.argv[1]), sys.argv[2]

def kill_around(owner, name, moment, when):
    inner, calls = getattr(owner, name), [0]
    def outer(*given, **named):
        calls[0] += 1
        if moment == f"before {name}" and calls[0] == when:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = inner(*given, **named)
        if moment == f"after {name}" and calls[0] == when:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(owner, name, outer)

def run(moment, when):
    for owner, names in ((PartialOutput, ("write", "let_out")), (Ledger, ("check", "settle"))):
        for name in names:
            kill_around(owner, name, moment, when)
    summary = encode(
        folder / "in.parquet", folder / "out.parquet", PrivateEncoder(Laplace(epsilon=2)),
        vectors="v", subject="who", ledger=folder / "ledger.db", budget=1000, repeats=repeats,
        block=20,
    )
    os._exit(3 if summary.is_resumed else 4)

for line in sys.stdin:
    moment, when = line.strip().split(",")
    child = os.fork()
    if child == 0:
        try:
            run(moment, int(when))
        finally:
            os._exit(1)
    if moment == "chance":
        parts, late = folder / ".out.parquet.parts", time.monotonic() + 20
        while time.monotonic() < late and len(list(parts.glob("[0-9]*"))) < int(when):
            if (folder / "out.parquet").exists():
                break
            time.sleep(0.0005)
        time.sleep(random.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
ROWS, PEOPLE, PARTS = 200, 7, ".out.parquet.parts"
KILLED, RESUMED = -signal.SIGKILL, 3


class Nursery:
    """Forks a run of `encode` for each moment at which to kill it; imports only once."""

    def __init__(self, folder: Path, kind: str = "fresh", rows: int = ROWS) -> None:
        vectors_file(folder / "in.parquet", rows, PEOPLE)
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY, str(folder), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.communicate(timeout=60)

    def run(self, moment: str = "never", when: int = 0) -> int:
        """The exit code of one run; `chance` kills it soon after so many parts are there."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{moment},{when}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


def parts(folder: Path) -> dict[str, np.ndarray]:
    """The vectors of each part that lies on the disk."""
    found = sorted((folder / PARTS).glob("[0-9]*.parquet"))
    return {path.name: np.stack(pq.read_table(path)["vector"].to_pylist()) for path in found}


def check_balance(folder: Path) -> None:
    """Every charge has its vector in the store, and every vector its charge."""
    with Ledger(folder / "ledger.db") as ledger:
        charges = ledger.counts().releases
        ledger.verify(ledger.head)
    direct = sqlite3.connect(folder / "ledger.db")
    assert direct.execute("SELECT count(*) FROM releases").fetchone() == (charges,)
    direct.close()


def check_once(folder: Path, rows: int, kind: str) -> None:
    """Each row once and in order, each subject charged once for each, the paid vectors let out."""
    table = pq.read_table(folder / "out.parquet")
    assert table["row"].to_pylist() == list(range(rows))
    assert table["who"].to_pylist() == [f"p{row % PEOPLE}" for row in range(rows)]
    for who, count in Counter(table["who"].to_pylist()).items():
        assert spent(folder / "ledger.db", who) == 2.0 * count
    released, private = Release.load(folder / "out.parquet"), noise()
    with Ledger(folder / "ledger.db") as ledger:
        content = zip(table["who"].to_pylist(), numbers(rows), strict=True)
        name = Release(released.vectors, released.guarantee, private.recipe).recipe_hash
        names = [ledger.release_name(name, who, row.tobytes()) for who, row in content]
        stored = ledger.find(names)
    if kind == "same":
        check_balance(folder)
        np.testing.assert_array_equal(np.stack([stored[name] for name in names]), released.vectors)
    assert untouched(folder, "in.parquet", "ledger.db", "out.parquet")


@pytest.mark.parametrize("kind", ["fresh", pytest.param("same", marks=pytest.mark.slow)])
def test_killed_at_every_kind_of_moment_and_resumed(tmp_path: Path, kind: str) -> None:
    """One run, killed at each step in turn; what once lay on the disk is what is released."""
    moments = [
        ("before check", 1), ("before settle", 1), ("before write", 1), ("before write", 2),
        ("after write", 2), ("before settle", 5), ("after settle", 6), ("before let_out", 1),
        ("after let_out", 1),
    ]  # fmt: skip
    stored: dict[str, np.ndarray] = {}
    with Nursery(tmp_path, kind) as nursery:
        for moment, when in moments:
            assert nursery.run(moment, when) == KILLED, moment
            assert (tmp_path / "out.parquet").exists() == (moment == "after let_out")
            assert stat.S_IMODE((tmp_path / PARTS).stat().st_mode) == 0o700
            now = parts(tmp_path)
            assert all((now[name] == vectors).all() for name, vectors in stored.items())
            stored = now
            if moment != "before check":
                check_balance(tmp_path)
        assert nursery.run() == RESUMED
    check_once(tmp_path, ROWS, kind)
    released = Release.load(tmp_path / "out.parquet").vectors
    np.testing.assert_array_equal(np.concatenate(list(stored.values())), released)


@pytest.mark.parametrize(
    ("kills", "rows", "kind"),
    [
        (10, ROWS, "fresh"),
        pytest.param(30, 6 * ROWS, "fresh", marks=pytest.mark.slow),
        pytest.param(30, 6 * ROWS, "same", marks=pytest.mark.slow),
    ],
)
def test_killed_at_random_moments_and_resumed(
    tmp_path: Path, kills: int, rows: int, kind: str
) -> None:
    """Up to so many: now and then a run is quicker than the last kill."""
    with Nursery(tmp_path, kind, rows) as nursery:
        ends = []
        while len(ends) < kills and not (tmp_path / "out.parquet").exists():
            ends.append(nursery.run("chance", len(ends) * rows // 20 * 7 // (10 * kills)))
            if (tmp_path / PARTS).exists() and (tmp_path / "ledger.db").exists():
                check_balance(tmp_path)
        print(f"{ends.count(KILLED)} of {len(ends)} runs were killed")
        assert ends.count(KILLED) >= kills // 3
        if (tmp_path / PARTS).exists():
            assert nursery.run() == RESUMED
    check_once(tmp_path, rows, kind)


# ---- an unfinished run ---------------------------------------------------------------------------


class Stops(Plain):
    """Fails at its third block, as a full disk or a broken model would."""

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        if self.rows >= 40:
            raise CapeletError("the model broke")
        return super().__call__(batch)


def unfinished(folder: Path, **options: Any) -> dict[str, Any]:
    """A run that stopped after two blocks of 20 rows; its options."""
    vectors_file(folder / "in.parquet", 100, PEOPLE)
    asked = {"vectors": "v", "subject": "who", "block": 20, **options}
    with pytest.raises(CapeletError, match="broke"):
        encode(folder / "in.parquet", folder / "out.parquet", PrivateEncoder(Stops()), **asked)
    return asked


def test_a_run_is_taken_up_only_with_the_same_rows_and_recipe(tmp_path: Path) -> None:
    asked = unfinished(tmp_path)
    source, target, step = tmp_path / "in.parquet", tmp_path / "out.parquet", Plain()
    with pytest.raises(OutputError, match="unfinished run"):
        encode(source, target, noise(), **asked)
    pq.write_table(pq.read_table(source).slice(1), source)
    with pytest.raises(OutputError, match="unfinished run"):
        encode(source, target, PrivateEncoder(step), **asked)
    assert step.rows == 0
    summary = encode(source, target, PrivateEncoder(step), overwrite=True, **asked)
    assert step.rows == 99 == summary.rows and not summary.is_resumed
    np.testing.assert_array_equal(Release.load(target).vectors, numbers(100)[1:])


def test_a_ledger_changed_meanwhile_stops_the_run_which_then_goes_on(tmp_path: Path) -> None:
    """Another process spends p0's budget between the passes; later the budget is raised."""
    source, book = vectors_file(tmp_path / "in.parquet", 140, PEOPLE), tmp_path / "ledger.db"
    asked = {"vectors": "v", "subject": "who", "ledger": book, "block": 20}
    meddled = []

    def meddle(what: str, done: int, total: int) -> None:
        if what == "releasing" and done == 60 and not meddled:
            meddled.append(1)
            with Ledger(book) as other:
                names = [b"%d" % number for number in range(5)]
                other.settle(["p0"] * 5, names, np.zeros((5, WIDTH)), Guarantee(2.0))

    message = r"changed by another process.*1 person, whose first row is 1\d\d; .* goes on from row"
    with pytest.raises(CapeletError, match=message):
        encode(source, tmp_path / "out.parquet", noise(), budget=40, progress=meddle, **asked)
    before = spent(book, "p0")
    assert not (tmp_path / "out.parquet").exists() and 10.0 < before <= 40.0
    with pytest.raises(BudgetError, match="1 person"):  # again, now in the first pass
        encode(source, tmp_path / "out.parquet", noise(), budget=40, **asked)
    assert spent(book, "p0") == before
    with pytest.raises(CapeletError, match="capelet budgets raise"):
        encode(source, tmp_path / "out.parquet", noise(), budget=50, **asked)
    with Ledger(book) as ledger:
        ledger.raise_budget(Budget(50))
    summary = encode(source, tmp_path / "out.parquet", noise(), budget=50, **asked)
    assert summary.is_resumed and summary.drawn == 140
    assert spent(book, "p0") == 50.0 and spent(book, "p1") == 40.0


@pytest.mark.parametrize("gone", ["00000000.parquet", "*.parquet"])
def test_paid_parts_that_are_gone_come_back_from_the_store(tmp_path: Path, gone: str) -> None:
    """It may have left: never is new noise drawn under an old charge."""
    source, book = vectors_file(tmp_path / "in.parquet", 100, PEOPLE), tmp_path / "ledger.db"
    asked = {"vectors": "v", "subject": "who", "block": 20, "ledger": book}

    def stop(what: str, done: int, total: int) -> None:
        if what == "releasing" and done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(source, tmp_path / "out.parquet", noise(), progress=stop, **asked)
    stored = parts(tmp_path)
    for path in (tmp_path / PARTS).glob(gone):
        path.unlink()
    encode(source, tmp_path / "out.parquet", noise(), **asked)
    released = Release.load(tmp_path / "out.parquet").vectors
    np.testing.assert_array_equal(np.concatenate(list(stored.values())), released[:40])
    assert spent(book, "p0") == 2.0 * 15


def test_a_run_without_its_folder_is_another_run_and_pays(tmp_path: Path) -> None:
    asked = unfinished(tmp_path, ledger=tmp_path / "ledger.db")
    before = spent(tmp_path / "ledger.db", "p0")
    shutil.rmtree(tmp_path / PARTS)
    encode(tmp_path / "in.parquet", tmp_path / "out.parquet", PrivateEncoder(Plain()), **asked)
    assert before == 2.0 * 6 and spent(tmp_path / "ledger.db", "p0") == before + 2.0 * 15


def test_parts_that_the_ledger_does_not_know_are_charged(tmp_path: Path) -> None:
    """An old copy of the ledger is put back between a crash and the next run."""
    source, book = vectors_file(tmp_path / "in.parquet", 100, PEOPLE), tmp_path / "ledger.db"
    asked = {"vectors": "v", "subject": "who", "block": 20, "ledger": book}
    with Ledger(book) as ledger:
        ledger.open()
    copy = book.read_bytes()

    def stop(what: str, done: int, total: int) -> None:
        if what == "releasing" and done == 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(source, tmp_path / "out.parquet", noise(), progress=stop, **asked)
    assert spent(book, "p0") == 2.0 * 6
    book.write_bytes(copy)
    assert spent(book, "p0") == 0.0
    encode(source, tmp_path / "out.parquet", noise(), **asked)
    assert spent(book, "p0") == 2.0 * 15


@pytest.mark.parametrize("failing", [1, 3])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    source, book = vectors_file(tmp_path / "in.parquet", 100, PEOPLE), tmp_path / "ledger.db"
    asked = {"vectors": "v", "subject": "who", "block": 20, "ledger": book}
    real, calls = partial_output.write_whole, []

    def full(*given: Any, **named: Any) -> None:
        calls.append(1)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*given, **named)

    monkeypatch.setattr(partial_output, "write_whole", full)
    with pytest.raises(OutputError, match="No space left"):
        encode(source, tmp_path / "out.parquet", noise(), **asked)
    with Ledger(book) as ledger:
        assert sum(ledger.spent(who).epsilon for who in ledger.subjects()) == 2.0 * 20 * failing
    assert encode(source, tmp_path / "out.parquet", noise(), **asked).is_resumed
    assert spent(book, "p0") == 2.0 * 15


def test_one_run_at_a_time(tmp_path: Path) -> None:
    source = vectors_file(tmp_path / "in.parquet", 100)
    refused = []

    def second(what: str, done: int, total: int) -> None:
        if what == "releasing" and not refused:
            with pytest.raises(OutputError, match="another run is writing"):
                encode(source, tmp_path / "out.parquet", noise(), vectors="v", block=20)
            refused.append(1)

    encode(source, tmp_path / "out.parquet", noise(), vectors="v", block=20, progress=second)
    assert refused and pq.read_table(tmp_path / "out.parquet").num_rows == 100


def test_a_file_changed_between_the_passes_is_noticed(tmp_path: Path) -> None:
    source = vectors_file(tmp_path / "in.parquet", 100)

    def change(what: str, done: int, total: int) -> None:
        if what == "checking" and done == total:
            table = pq.read_table(source)
            source.unlink()
            pq.write_table(table.slice(0, 60), source)

    with pytest.raises(DataError, match="changed while it was read"):
        encode(source, tmp_path / "out.parquet", noise(), vectors="v", block=20, progress=change)
    assert not (tmp_path / "out.parquet").exists()


# ---- memory --------------------------------------------------------------------------------------

PEAK = """
import resource, sys
from capelet.release.batch import encode
from capelet.mechanisms import Laplace
from capelet.release import PrivateEncoder
ledger = {"subject": "who", "ledger": sys.argv[3]} if len(sys.argv) > 3 else {}
private = PrivateEncoder("wordllama", Laplace(epsilon=8))
encode(sys.argv[1], sys.argv[2], private, text="t", **ledger)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("paid", [False, True])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, paid: bool) -> None:
    """200,000 rows need at most 1.5 times the memory of 20,000."""
    peaks = []
    for rows in (20_000, 200_000):
        texts = [
            f"the review number {row} says that the food was {row % 97}" for row in range(rows)
        ]
        who = [str(row % 5000) for row in range(rows)]
        pq.write_table(pa.table({"t": texts, "who": who}), tmp_path / f"{rows}.parquet")
        given = [str(tmp_path / f"{rows}.parquet"), str(tmp_path / f"out{rows}.parquet")]
        given += [str(tmp_path / f"{rows}.db")] if paid else []
        done = subprocess.run(
            [sys.executable, "-c", PEAK, *given], capture_output=True, text=True, check=True
        )
        peaks.append(int(done.stdout))
    print(f"peak of 20,000 rows {peaks[0] // 1024} MiB, of 200,000 {peaks[1] // 1024} MiB")
    assert peaks[1] <= 1.5 * peaks[0]


# ---- named sets ----------------------------------------------------------------------------------


def test_a_named_set_is_released_by_its_name(tmp_path: Path) -> None:
    """The embedded sample is made in memory; its author may be charged."""
    out, book = tmp_path / "out.parquet", tmp_path / "book.db"
    private = PrivateEncoder(Length(), Laplace(epsilon=2.0))
    done = encode("reviews", out, private, subject="author", ledger=book)
    corpus = load("reviews")
    assert corpus.texts is not None and corpus.author is not None
    assert done.rows == len(corpus) and done.guarantee == Guarantee(2.0)
    assert pq.read_table(out)["author"].to_pylist() == corpus.author.tolist()
    assert spent(book, corpus.author[0]) > 0
    with pytest.raises(DataError, match="knows its own columns"):
        encode("reviews", tmp_path / "again.parquet", private, text="text")
    with pytest.raises(DataError, match="no column 'writer'; there is"):
        encode("reviews", tmp_path / "again.parquet", private, subject="writer")
    with pytest.raises(DataError, match="there is no file and no set 'reviws'; did you mean"):
        encode("reviws", tmp_path / "again.parquet", private, text="text")


def test_a_set_on_disk_is_its_file_and_a_file_of_that_name_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPELET_DATA", str(tmp_path))
    pq.write_table(pa.table({"text": ["one", "two words"]}), tmp_path / "sst2.parquet")
    private = PrivateEncoder(Length())
    assert encode("sst2", tmp_path / "out.parquet", private).rows == 2
    vectors = Release.load(tmp_path / "out.parquet").vectors
    np.testing.assert_array_equal(vectors[:, 0], [3, 9])
    with pytest.raises(DataError, match="the data set 'trec' is not here"):
        encode("trec", tmp_path / "other.parquet", private)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews").write_text("a file")
    with pytest.raises(DataError, match="not a kind of file"):
        encode("reviews", tmp_path / "other.parquet", private, text="text")
