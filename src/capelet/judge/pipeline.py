"""A judge of the whole road: neighbouring files in, released files out through `encode` itself.

Two files that differ in one row's text are released, each several times and in several ways:
without a ledger, with one, with one that knows the texts already, with a budget that is just short,
with the same vector for equal texts.
What leaves, beside the vectors of that row, must not tell which of the two went in: refusals,
schema, metadata byte by byte, footers, number and order of rows, side columns, and which vectors
are equal to which. The vectors themselves are for `verify`, noise step by noise step; that no other
row's vector moves before its noise is checked here. Time is not looked at.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from capelet.errors import CapeletError
from capelet.interfaces import Progress, silent
from capelet.judge.released import (
    FILE_CHECKS,
    Disclosure,
    Inspection,
    ReleasedFile,
    file_disclosures,
)
from capelet.release import PrivateEncoder
from capelet.release.batch import VECTOR, encode
from capelet.release.steps import run

Row = Any  # a text, or a vector
Encode = Callable[..., Any]

RUNS = 2  # releases of each file in each way: two tell what differs between runs of one file
BLOCK = 8  # rows drawn together: the files have three blocks, and the target stands in the second
ROWS = 2 * BLOCK + 1
TARGET = 12  # a row of the first person, who alone has one text more than the others
COLUMN, SUBJECT = "text", "person"
WIDTH = 16  # of vectors, where the recipe does not say

_SUBJECTS = ("ada", "ben", "cleo", "dan")
_TEXTS = (
    "the soup came late and the waiter was kind",
    "a long walk along the river in the rain",
    "my neighbour repaired the old bicycle",
    "we waited an hour for the train to leave",
    "the second chapter is better than the first",
    "she paints the door blue every spring",
    "no reply to my letter from the bank",
    "he keeps three cats and a parrot",
    "bread, salt and a little oil",
    "the doctor said it would pass in a week",
)


@dataclass(frozen=True)
class Case:
    """One change of one row: what the row holds in the first file and in the second."""

    name: str
    first: Callable[[list[Row]], Row]
    second: Callable[[list[Row]], Row]


def _put(text: str, change: Callable[[Any], Any]) -> Callable[[list[Row]], Row]:
    """This text or, where rows are vectors, what a change makes of the first one."""
    return lambda rows: text if isinstance(rows[0], str) else change(rows[0])


def _long(rows: list[Row]) -> Row:
    return " ".join(rows[:6] * 3) if isinstance(rows[0], str) else rows[0] * 1e6


_new = _put("an answer that nobody else gave", lambda row: row * -1.0)
_short = _put("a", lambda row: row * 0.0)
# People take turns: so many rows before stands the same person's, in block one.
_EARLIER = TARGET - 2 * len(_SUBJECTS)
CASES = (
    Case("another text", _new, _put("quite another thing to say", lambda row: row[::-1] * 2.0)),
    Case("a text that the person had written before", lambda rows: rows[_EARLIER], _new),
    Case("a text that somebody else had written", lambda rows: rows[TARGET - 1], _new),
    Case("a long text and a short one", _long, _short),
    Case("letters of another script", _put("свет и тень 光 😀", lambda row: row * -1e-6), _new),
)


@dataclass(frozen=True)
class Way:
    """How a file is released: with which memory and which limit.

    `is_same` asks for the same vector for equal texts of a person, which must be declared.
    """

    name: str
    has_ledger: bool = False
    knows_texts: bool = False
    is_short: bool = False
    is_same: bool = False


WAYS = (
    Way("without a ledger"),
    Way("with a ledger", has_ledger=True),
    Way("with a ledger that knows the texts", has_ledger=True, knows_texts=True),
    Way("with a budget that is just short", has_ledger=True, is_short=True),
    Way("with the same vector for equal texts", has_ledger=True, knows_texts=True, is_same=True),
)
# A ledger knows texts only as equal or not: what a text looks like is tried without one.
PLAN = tuple((case, way) for way in WAYS for case in (CASES[:2] if way.has_ledger else CASES))


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that leaves one run: files, or a refusal."""

    files: tuple[ReleasedFile, ...]
    refusal: str = ""

    @property
    def equality(self) -> tuple[int, ...]:
        """Which vectors of all files are equal to which: each is numbered by its first equal."""
        rows = [row.tobytes() for file in self.files for row in file.vectors]
        first: dict[bytes, int] = {}
        return tuple(first.setdefault(row, place) for place, row in enumerate(rows))


@dataclass(frozen=True, eq=False)
class PairOutcomes:
    """What left for the first file and for the second, run by run."""

    case: Case
    way: Way
    sides: tuple[tuple[Outcome, ...], tuple[Outcome, ...]]

    def differs(self, look: Callable[[Outcome], Any]) -> bool:
        """Whether something differs between the files and never between two runs of one file.

        What changes from run to run (a random id) is noise, and not told by this comparison.
        """
        first, second = ([look(outcome) for outcome in side] for side in self.sides)
        is_steady = all(item == side[0] for side in (first, second) for item in side)
        return is_steady and first[0] != second[0]


# ---- the checks ----------------------------------------------------------------------------------


def _footer(file: ReleasedFile) -> list[Any]:
    """What the footer says of the file, and of each column but the vectors: those are noise."""
    footer = file.footer
    facts: list[Any] = [footer.created_by, footer.num_rows, footer.metadata]
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        facts.append(group.num_rows)
        columns = [group.column(place) for place in range(group.num_columns)]
        facts += [
            # Where a column begins depends on how well the noise before it was compressed.
            {key: value for key, value in column.to_dict().items() if "offset" not in key}
            for column in columns
            if not column.path_in_schema.startswith(VECTOR)
        ]
    return facts


def _of_files(look: Callable[[ReleasedFile], Any]) -> Callable[[Outcome], Any]:
    return lambda outcome: [look(file) for file in outcome.files]


# What is looked at of each run, and what it is in a sentence.
ROAD_CHECKS: dict[str, tuple[Callable[[Outcome], Any], str]] = {
    "refusals": (
        lambda outcome: outcome.refusal,
        "whether, or with which words, the file is refused",
    ),
    "schema": (_of_files(lambda file: file.table.schema), "the schema"),
    "metadata": (_of_files(lambda file: file.metadata), "the metadata"),
    "footer": (_of_files(_footer), "the footer of the file"),
    "side columns": (
        _of_files(lambda file: file.table.drop_columns([VECTOR])),
        "number, order or side columns of the rows",
    ),
    "equality": (lambda outcome: outcome.equality, "which vectors are equal"),
}
BATCH = "batch"  # the one check that looks at vectors before their noise


def verify_pipeline(
    private: PrivateEncoder, *, release: Encode = encode, progress: Progress = silent
) -> Inspection:
    """Release neighbouring files through `release` and tell what differs beside the vectors.

    With a ledger where the guarantee is for whole texts, which is what a ledger charges. A
    difference that the files declare (equal texts of a person get equal vectors) is told and is no
    fault.
    """
    rows = _rows(private)
    is_local = private.guarantee.notion == "local" and private.guarantee.unit == "text"
    plan = [(case, way) for case, way in PLAN if is_local or not way.has_ledger]
    is_discrete = _is_discrete(private, rows)
    disclosures: dict[str, Disclosure] = {}
    with tempfile.TemporaryDirectory() as folder:
        for place, (case, way) in enumerate(plan):
            road = _Road(private, release, Path(folder) / str(place), is_discrete)
            for item in road.inspect(case, way, rows):
                disclosures.setdefault(item.sentence, item)
            progress("neighbouring files", place + 1, len(plan))
    for sentence in _moved_neighbours(private, rows):
        disclosures.setdefault(sentence, Disclosure(BATCH, sentence))
    checks = (*ROAD_CHECKS, BATCH, *(f"file: {name}" for name in FILE_CHECKS))
    steps = " → ".join(str(step.describe()["step"]) for step in private.steps)
    return Inspection(f"The road {steps}", checks, tuple(disclosures.values()))


def _rows(private: PrivateEncoder) -> list[Row]:
    """Public rows: ten texts, twice and some; vectors of the width that the recipe asks for."""
    if private.consumes == "texts":
        return [f"{_TEXTS[place % 10]}, part {place}" for place in range(ROWS)]
    step = private.steps[0] if private.steps else None
    width = next(
        (w for w in (getattr(step, n, None) for n in ("dimension", "classes")) if w), WIDTH
    )
    return list(np.random.default_rng(0).normal(size=(ROWS, int(width))))


def _is_discrete(private: PrivateEncoder, rows: list[Row]) -> bool:
    """Whether vectors of one text repeat by themselves, as symbols do: then equality is noise."""
    batch = [rows[0]] * 64
    vectors = private.release(batch if isinstance(rows[0], str) else np.stack(batch)).vectors
    return len(np.unique(np.asarray(vectors, dtype=np.float32), axis=0)) < len(batch)


@dataclass(frozen=True, eq=False)
class _Road:
    """One private encoder and a folder of files to send through it."""

    private: PrivateEncoder
    release: Encode
    folder: Path
    is_discrete: bool

    def inspect(self, case: Case, way: Way, rows: list[Row]) -> Iterator[Disclosure]:
        sides = []
        for which, choose in enumerate((case.first, case.second)):
            content = [*rows[:TARGET], choose(rows), *rows[TARGET + 1 :]]
            place = self.folder / str(which)
            runs = (self._outcome(place / str(n), way, rows, content) for n in range(RUNS))
            sides.append(tuple(runs))
        trial = PairOutcomes(case, way, (sides[0], sides[1]))
        files = [file for side in sides for outcome in side for file in outcome.files]
        is_declared = bool(files) and all(file.declares_repeats for file in files)
        for name, (look, subject) in ROAD_CHECKS.items():
            # Symbols repeat by themselves: which are equal is noise.
            if not (name == "equality" and self.is_discrete) and trial.differs(look):
                # Equal texts cost once, so a declared equality shows in a budget as well.
                is_fault = not (is_declared and name in ("equality", "refusals"))
                sentence = f"{case.name} shows in {subject} ({way.name})"
                yield Disclosure(name, sentence, is_fault)
                if name == "refusals":
                    break  # one of the two left no file to compare
        for item in (item for file in files for item in file_disclosures(file)):
            yield Disclosure(
                f"file: {item.check}", f"a released file: {item.sentence}", item.is_fault
            )

    def _outcome(self, folder: Path, way: Way, rows: list[Row], content: list[Row]) -> Outcome:
        folder.mkdir(parents=True)
        batches = [rows, content] if way.knows_texts else [content]
        files: list[ReleasedFile] = []
        for number, batch in enumerate(batches):
            source, target = folder / f"in{number}.parquet", folder / f"out{number}.parquet"
            _write(source, batch)
            try:
                self.release(source, target, self.private, **self._options(folder, way, batch))
            except CapeletError as error:
                # The folder's name is ours, and differs from run to run.
                return Outcome(tuple(files), str(error).replace(str(folder), "") or "refused")
            files.append(ReleasedFile(target))
        return Outcome(tuple(files))

    def _options(self, folder: Path, way: Way, batch: list[Row]) -> dict[str, Any]:
        kind = "text" if self.private.consumes == "texts" else "vectors"
        options: dict[str, Any] = {kind: COLUMN, "subject": SUBJECT, "block": BLOCK}
        if way.has_ledger:
            options["ledger"] = folder / "ledger.sqlite"
        if way.is_same:
            options["repeats"] = "same"
        if way.is_short:
            # Enough for all texts of a person but one: only a text that costs nothing fits.
            most = -(-len(batch) // len(_SUBJECTS))
            options["budget"] = (most - 0.5) * self.private.guarantee.epsilon
        return options


def _write(path: Path, rows: Sequence[Row]) -> None:
    kind = pa.string() if isinstance(rows[0], str) else pa.list_(pa.float64())
    people = [_SUBJECTS[place % len(_SUBJECTS)] for place in range(len(rows))]
    table = pa.table({COLUMN: pa.array(list(rows), kind), SUBJECT: people})
    pa.parquet.write_table(table, path)


def _moved_neighbours(private: PrivateEncoder, rows: list[Row]) -> Iterator[str]:
    """Rows whose vector moves, before any noise, when another row's text changes.

    An encoder that pads a batch to its longest text changes the last bits of all its vectors; that
    one text then shows through others, whose noise was not drawn for it.
    """
    noise = [place for place, step in enumerate(private.steps) if step.guarantee is not None]
    steps = private.steps[: noise[0]] if noise else private.steps
    batches = [[*rows[:TARGET], choose(rows), *rows[TARGET + 1 :]] for choose in (_long, _short)]
    is_text = isinstance(rows[0], str)
    outputs = [run(steps, batch if is_text else np.stack(batch)) for batch in batches]
    if isinstance(outputs[0], list):
        pairs = zip(*outputs, strict=True)
        changes = sum(one != other for n, (one, other) in enumerate(pairs) if n != TARGET)
    else:
        first, second = (np.delete(np.asarray(out), TARGET, axis=0) for out in outputs)
        changes = int((first != second).any(axis=1).sum())
    if changes:
        yield f"{changes} other rows of a batch change, before any noise, with the text of one row"
