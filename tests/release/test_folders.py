"""Many files in, a folder of parts out: each row once, each part settled once, whoever draws."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capelet.data.formats import Format
from capelet.errors import CapeletError, DataError, OutputError
from capelet.ledger.store import Ledger
from capelet.mechanisms.vectors import Laplace
from capelet.release import PrivateEncoder, Release
from capelet.release.batch import Workers, encode
from capelet.release.manifest import MANIFEST

FILES, ROWS, PEOPLE, EPSILON = 20, 30, 7, 2.0
PARTS = ".out.parts"


def write_files(folder: Path, files: int = FILES, rows: int = ROWS) -> Path:
    """Files of vectors about a few people, in which every third vector comes in all files."""
    source = folder / "in"
    source.mkdir()
    random = np.random.default_rng(0)
    common = random.normal(size=(rows, 4)).astype(np.float32)
    for number in range(files):
        vectors = random.normal(size=(rows, 4)).astype(np.float32)
        vectors[::3] = common[::3]
        people = [f"p{row % PEOPLE}" for row in range(rows)]
        table = pa.table({"v": list(vectors), "who": people})
        pq.write_table(table, source / f"{number:03d}.parquet", row_group_size=8)
    (folder / "recipe.toml").write_text(f'[[steps]]\nstep = "laplace"\nepsilon = {EPSILON}\n')
    return source


def noise() -> PrivateEncoder:
    return PrivateEncoder(Laplace(epsilon=EPSILON))


def paid(folder: Path, kind: str = "same") -> dict[str, Any]:
    return {"subject": "who", "ledger": folder / "ledger.db", "budget": 10_000, "repeats": kind}


def contents(source: Path) -> list[tuple[str, bytes]]:
    """Who and what stands in each row, in order of files."""
    table = pq.read_table(source)
    rows = zip(table["who"].to_pylist(), table["v"].to_pylist(), strict=True)
    return [(who, np.asarray(vector, np.float32).tobytes()) for who, vector in rows]


def check_once(folder: Path, kind: str) -> np.ndarray:
    """Each row once and in order, one vector per (person, text), charged once; the vectors."""
    rows = contents(folder / "in")
    table = pq.read_table(folder / "out")
    assert table["row"].to_pylist() == list(range(len(rows)))
    assert table["who"].to_pylist() == [who for who, _ in rows]
    released = Release.load(folder / "out")
    vectors = [vector.tobytes() for vector in released.vectors]
    pairs = set(zip(rows, vectors, strict=True))
    distinct = set(rows)
    charges = Counter(who for who, _ in (distinct if kind == "same" else rows))
    # One vector for each (person, text) where repeats are the same, else one for each row.
    assert len(pairs) == len(distinct) if kind == "same" else len(set(vectors)) == len(rows)
    with Ledger(folder / "ledger.db") as ledger:
        assert ledger.counts().releases == sum(charges.values())
        for who, count in charges.items():
            total = ledger.spent(who)
            assert total is not None and total.epsilon == EPSILON * count
        ledger.verify(ledger.head)
        if kind == "same":
            names = [
                ledger.release_name(released.recipe_hash, who, content) for who, content in rows
            ]
            stored = ledger.find(names)
            assert [stored[name].tobytes() for name in names] == vectors
    assert not (folder / PARTS).exists()
    return released.vectors


# ---- what comes out ------------------------------------------------------------------------------


@pytest.mark.usefixtures("usual_umask")
def test_a_folder_becomes_parts_and_a_manifest(tmp_path: Path) -> None:
    source = write_files(tmp_path, 3)
    summary = encode(source, tmp_path / "out", noise(), vectors="v", block=20)
    manifest = json.loads((tmp_path / "out" / MANIFEST).read_text())
    assert summary.rows == manifest["rows"] == 3 * ROWS and summary.drawn == 3 * ROWS
    # 30 rows in blocks of 20: no part crosses from one file into the next.
    spans = [(0, 20), (20, 30), (30, 50), (50, 60), (60, 80), (80, 90)]
    assert [tuple(part["rows"]) for part in manifest["parts"]] == spans
    names = {part["file"] for part in manifest["parts"]} | {MANIFEST}
    # Neither do the times of files tell which part took longer, or came from the ledger.
    assert len({path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    for part in manifest["parts"]:
        path = tmp_path / "out" / part["file"]
        assert pq.read_table(path)["row"].to_pylist() == list(range(*part["rows"]))
        assert Release.load(path).guarantee == noise().guarantee
        # Released files are for their readers; what waited was for its owner.
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert not (tmp_path / PARTS).exists()


@pytest.mark.parametrize("form", ["folder", "pattern", "address", "address of a pattern"])
def test_a_source_is_a_folder_a_pattern_or_an_address(tmp_path: Path, form: str) -> None:
    source = write_files(tmp_path, 12)
    (source / "_SUCCESS").write_text("")
    (source / "year").mkdir()
    (source / "010.parquet").rename(source / "year" / "010.parquet")
    (source / "011.parquet").rename(source / ".hidden.parquet")
    places = {
        "folder": (source, 11),
        "pattern": (source / "00[0-4].parquet", 5),
        "address": (f"file://{source}", 11),
        "address of a pattern": (f"file://{source}/*.parquet", 10),
    }
    place, files = places[form]
    summary = encode(place, f"file://{tmp_path}/out", noise(), vectors="v")
    assert summary.rows == files * ROWS and summary.target == tmp_path / "out"


def test_the_manifest_tells_nothing_that_the_texts_decide(tmp_path: Path) -> None:
    """Neither file names, nor what was released before, nor a digest that a guess could meet."""
    source = write_files(tmp_path, 2)
    (source / "001.parquet").rename(source / "ann-miller.parquet")
    for name in ("a", "b"):
        encode(source, tmp_path / name, noise(), vectors="v", **paid(tmp_path))
    first, second = (json.loads((tmp_path / name / MANIFEST).read_text()) for name in ("a", "b"))
    # All of `b` was stored before, and that does not show; nor do equal rows in the run's name.
    assert first.pop("run") != second.pop("run")
    assert first == second
    assert "miller" not in json.dumps(first)
    public = {"schema", "rows", "dimension", "guarantee", "word_guarantee", "recipe", "repeats"}
    assert first.keys() == public | {"parts"}
    assert all(part.keys() == {"file", "rows", "bytes", "sha256"} for part in first["parts"])
    # Control: whoever holds the key does recognise the run.
    assert encode(source, tmp_path / "a", noise(), vectors="v", **paid(tmp_path)).is_resumed


def test_another_user_does_not_recognise_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the run is under a key of this user: a guess at the rows cannot be tried."""
    source = write_files(tmp_path, 1)
    encode(source, tmp_path / "out", noise(), vectors="v")
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path / "attacker"))
    with pytest.raises(OutputError, match="not of this run"):
        encode(source, tmp_path / "out", noise(), vectors="v")


# ---- bad input -----------------------------------------------------------------------------------


def test_a_folder_without_parquet_and_one_with_other_files(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for content, sentence in (({}, "no Parquet file"), ({"a.csv": "v\n1\n"}, "not Parquet")):
        for name, text in content.items():
            (source / name).write_text(text)
        with pytest.raises(DataError, match=sentence):
            encode(source, tmp_path / "out", noise(), vectors="v")
    with pytest.raises(DataError, match="cannot be read"):
        encode(tmp_path / "gone" / "*.parquet", tmp_path / "out", noise(), vectors="v")
    with pytest.raises(DataError, match="not an address"):
        encode("nowhere://bucket/in", tmp_path / "out", noise(), vectors="v")
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def test_a_file_with_other_columns_is_named_before_anything_is_drawn(tmp_path: Path) -> None:
    source = write_files(tmp_path, 3)
    pq.write_table(pa.table({"w": [1]}), source / "002.parquet")
    with pytest.raises(DataError, match=r"'002\.parquet'.*'v'"):
        encode(source, tmp_path / "out", noise(), vectors="v", **paid(tmp_path))
    assert not (tmp_path / "ledger.db").exists() and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"v": [[1.0, 2.0, 3.0, float("nan")]], "who": ["ann"]}, "in 'x.parquet': row 0 .* NaN"),
        ({"v": [[1.0, 2.0]], "who": ["ann"]}, "in 'x.parquet': row 0 .* 2 numbers, others 4"),
        ({"v": [[1.0, 2.0, 3.0, 4.0]], "who": [None]}, "in 'x.parquet': row 0 .* subject"),
    ],
)
def test_a_bad_row_is_named_with_its_file(
    tmp_path: Path, content: dict[str, Any], sentence: str
) -> None:
    source = write_files(tmp_path, 2)
    pq.write_table(pa.table(content), source / "x.parquet")
    with pytest.raises(DataError, match=sentence):
        encode(source, tmp_path / "out", noise(), vectors="v", **paid(tmp_path))
    assert not (tmp_path / "ledger.db").exists() and not (tmp_path / "out").exists()


def test_a_target_with_content_is_refused_unless_it_is_the_same_run(tmp_path: Path) -> None:
    source = write_files(tmp_path, 2)
    target = tmp_path / "out"
    options = {"vectors": "v", **paid(tmp_path, "fresh")}
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(OutputError, match="not empty"):
            encode(source, target, noise(), overwrite=overwrite, **options)
    (target / "notes.txt").unlink()
    encode(source, target, noise(), **options)
    vectors = check_once(tmp_path, "fresh")
    again = encode(source, target, noise(), **options)
    assert again.is_resumed and again.drawn == 0 and again.rows == 2 * ROWS
    np.testing.assert_array_equal(check_once(tmp_path, "fresh"), vectors)
    # Other rows, another recipe, another ledger: another run.
    with pytest.raises(OutputError, match="not of this run"):
        encode(source, target, PrivateEncoder(Laplace(epsilon=3)), **options)
    with pytest.raises(OutputError, match="not of this run"):
        encode(source, target, noise(), **{**options, "ledger": tmp_path / "other.db"})
    with pytest.raises(OutputError, match="not of this run"):
        encode(source / "000*", target, noise(), **options)
    (target / "part-000001.parquet").unlink()
    with pytest.raises(OutputError, match="second release"):
        encode(source, target, noise(), **options)


def test_places_that_do_not_fit(tmp_path: Path) -> None:
    source = write_files(tmp_path, 1)
    private, recipe = noise(), tmp_path / "recipe.toml"
    with pytest.raises(OutputError, match="lies in the folder"):
        encode(source, source / "out", private, vectors="v")
    with pytest.raises(OutputError, match="only a file system"):
        encode(source, "s3://bucket/out", private, vectors="v")
    with pytest.raises(OutputError, match="name a folder"):
        encode(source, recipe, private, vectors="v")
    with pytest.raises(CapeletError, match="for a folder"):
        encode(
            source / "000.parquet", tmp_path / "out", private, vectors="v", workers=Workers(recipe)
        )


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ({"engine": "rai"}, "did you mean 'ray'"),
        ({"address": "127.0.0.1:1"}, "address is of a Ray cluster|address= is of a Ray cluster"),
        ({"count": 0}, "at least 1"),
        ({"engine": "ray", "address": "127.0.0.1:1"}, "there is no Ray cluster"),
        ({"engine": "ray", "address": "nonsense"}, "there is no Ray cluster"),
    ],
)
def test_engines_that_cannot_be_had(tmp_path: Path, engine: dict[str, Any], sentence: str) -> None:
    if engine.get("engine") == "ray":
        pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    source = write_files(tmp_path, 1)
    workers = Workers(tmp_path / "recipe.toml", **engine)
    with pytest.raises(CapeletError, match=sentence):
        encode(source, tmp_path / "out", noise(), vectors="v", workers=workers)
    assert {path.name for path in tmp_path.iterdir()} == {"in", "recipe.toml"}


def test_without_the_extra_the_engine_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    source = write_files(tmp_path, 1)
    workers = Workers(tmp_path / "recipe.toml", "ray")
    with pytest.raises(CapeletError, match=r"capelet\[ray\]"):
        encode(source, tmp_path / "out", noise(), vectors="v", workers=workers)


# ---- workers -------------------------------------------------------------------------------------


def test_a_worker_with_another_recipe_or_other_rows_draws_nothing(tmp_path: Path) -> None:
    source = write_files(tmp_path, 2)
    workers = Workers(tmp_path / "recipe.toml", "local", 2)
    options = {"vectors": "v", "workers": workers, **paid(tmp_path)}
    with pytest.raises(OutputError, match="another one there"):
        encode(source, tmp_path / "out", PrivateEncoder(Laplace(epsilon=3)), **options)
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert ledger.counts().releases == 0
    assert not (tmp_path / "out").exists() and not (tmp_path / PARTS).exists()


@pytest.mark.parametrize("workers", [None, 2])
def test_the_right_rows_are_drawn_also_where_some_are_left_out(
    tmp_path: Path, workers: int | None
) -> None:
    """Without noise a vector shows which row it is of; empty and unwanted rows leave no gap."""
    pytest.importorskip("wordllama", reason="the extra 'words' is not installed")
    source = tmp_path / "in"
    source.mkdir()
    words = ["room", "tea", "bus", "cat", "rain", "book", "shoe", "song", "tree", "lamp"]
    words += ["door", "milk", "snow", "coin", "ship", "king"]
    texts = [None if row in (3, 13) else f"the {word}" for row, word in enumerate(words)]
    for start in (0, 10):
        table = pa.table({"text": texts[start : start + 10]})
        pq.write_table(table, source / f"{start:02d}.parquet", row_group_size=4)
    (tmp_path / "recipe.toml").write_text('[[steps]]\nstep = "encoder"\nname = "wordllama"\n')
    private = PrivateEncoder.from_recipe(tmp_path / "recipe.toml")
    summary = encode(
        source, tmp_path / "out", private, text="text", block=7, layout=Format(drop_empty=True),
        leave_out=lambda batch: np.asarray([text in ("the room", "the milk") for text in batch]),
        workers=Workers(tmp_path / "recipe.toml", "local", workers),
    )  # fmt: skip
    rest = [text for text in texts if text not in (None, "the room", "the milk")]
    expected = private.release([str(text) for text in rest]).vectors
    np.testing.assert_allclose(Release.load(tmp_path / "out").vectors, expected, atol=1e-6)
    assert pq.read_table(tmp_path / "out")["row"].to_pylist() == list(range(len(rest)))
    assert summary.warnings == ("2 rows were left out: they are empty",)


# Runs `encode` of a folder with workers; a worker and the driver may be killed on the way.
DRIVER = """
import os, signal, sys
from pathlib import Path
import capelet.release.drawing as drawing
from capelet.ledger.store import Ledger
from capelet.release.batch import PrivateEncoder, Workers, encode
from capelet.release.partial_output import PartialOutput

folder, engine, count, repeats, moment, when, victim = sys.argv[1:]
folder, draw = Path(folder), drawing.draw_attempt

def draw_and_die(task, folder=str(folder), victim=int(victim)):
    import os, signal
    from capelet.release.drawing import draw_attempt
    attempt = draw_attempt(task)
    try:
        if task.number == victim:
            os.close(os.open(os.path.join(folder, "died"), os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)
    except FileExistsError:
        pass
    return attempt

def kill_around(owner, name, calls=[0]):
    inner = getattr(owner, name)
    def outer(*given, **named):
        calls[0] += 1
        if moment == f"before {name}" and calls[0] == int(when):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = inner(*given, **named)
        if moment == f"after {name}" and calls[0] == int(when):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(owner, name, outer)

if __name__ == "__main__":
    if victim != "-1":
        drawing.draw_attempt = draw_and_die
    of_output = dict.fromkeys(("write", "let_out", "whole_folder"), PartialOutput)
    owners = {"settle": Ledger, **of_output}
    if moment != "never":
        kill_around(owners[moment.split()[1]], moment.split()[1])
    charging = {"ledger": folder / "ledger.db", "budget": 10_000, "repeats": repeats}
    encode(
        folder / "in", folder / "out", PrivateEncoder.from_recipe(folder / "recipe.toml"),
        vectors="v", subject="who", workers=Workers(folder / "recipe.toml", engine, int(count)),
        **({} if repeats == "none" else charging),
    )
"""


def drive(
    folder: Path, engine: str, count: int, kind: str, moment: str = "never", when: int = 0,
    victim: int = -1,
) -> int:  # fmt: skip
    """The exit code of one run of the driver."""
    script = folder / "driver.py"
    script.write_text(DRIVER)
    values = [str(folder), engine, str(count), kind, moment, str(when), str(victim)]
    done = subprocess.run(
        [sys.executable, str(script), *values], capture_output=True, text=True, timeout=300
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def adopted(folder: Path) -> dict[str, bytes]:
    """The parts that a run has taken for good."""
    return {path.name: path.read_bytes() for path in (folder / PARTS).glob("[0-9]*.parquet")}


def test_a_worker_and_the_driver_killed_on_this_machine(tmp_path: Path) -> None:
    """A worker after it wrote, the driver after it charged: one vector and one charge each."""
    write_files(tmp_path, 6)
    assert drive(tmp_path, "local", 2, "same", "after settle", 4, victim=1) == -signal.SIGKILL
    # The first worker of part 1 wrote and died; another one's draws were taken.
    assert (tmp_path / "died").exists() and len(adopted(tmp_path)) == 3
    assert not (tmp_path / "out").exists()
    before = adopted(tmp_path)
    summary = encode(tmp_path / "in", tmp_path / "out", noise(), vectors="v", **paid(tmp_path))
    assert summary.is_resumed
    check_once(tmp_path, "same")
    for number in range(3):
        path = tmp_path / "out" / f"part-{number:06d}.parquet"
        assert path.read_bytes() == before[f"{number:08d}.parquet"]


def test_without_a_ledger_parts_that_were_taken_are_never_drawn_again(tmp_path: Path) -> None:
    write_files(tmp_path, 5)
    assert drive(tmp_path, "local", 2, "none", "after write", 2, victim=0) == -signal.SIGKILL
    before = adopted(tmp_path)
    assert len(before) == 2
    # What a dead worker may have left is let out by nobody.
    planted = tmp_path / PARTS / "00000003.0123456789abcdef.attempt"
    planted.write_bytes(b"an attempt that nobody reported")
    encode(tmp_path / "in", tmp_path / "out", noise(), vectors="v", subject="who")
    assert pq.read_table(tmp_path / "out")["row"].to_pylist() == list(range(5 * ROWS))
    for number in range(2):
        path = tmp_path / "out" / f"part-{number:06d}.parquet"
        assert path.read_bytes() == before[f"{number:08d}.parquet"]
    assert not (tmp_path / PARTS).exists()


MOMENTS = [
    ("before settle", 1), ("after settle", 1), ("before write", 3), ("after write", 5),
    ("after whole_folder", 1), ("before let_out", 1), ("after let_out", 1),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fresh", "same"])
def test_killed_at_every_kind_of_moment(tmp_path: Path, kind: str) -> None:
    write_files(tmp_path)
    stored: dict[str, bytes] = {}
    for moment, when in MOMENTS:
        assert drive(tmp_path, "local", 2, kind, moment, when) == -signal.SIGKILL
        assert (tmp_path / "out").exists() == (moment == "after let_out")
        now = adopted(tmp_path)
        assert all(now[name] == content for name, content in stored.items())
        stored = now
    assert drive(tmp_path, "local", 2, kind) == 0
    check_once(tmp_path, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fresh", "same"])
def test_ray_loses_a_worker_and_the_driver(tmp_path: Path, kind: str) -> None:
    """20 files; a worker killed after writing, the driver killed, the run repeated twice."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    write_files(tmp_path)
    assert drive(tmp_path, "ray", 2, kind, "after settle", 8, victim=2) == -signal.SIGKILL
    assert (tmp_path / "died").exists() and len(adopted(tmp_path)) == 7
    assert drive(tmp_path, "ray", 2, kind) == 0
    vectors = check_once(tmp_path, kind)
    assert drive(tmp_path, "ray", 2, kind) == 0
    np.testing.assert_array_equal(check_once(tmp_path, kind), vectors)
