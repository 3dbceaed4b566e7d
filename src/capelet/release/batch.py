"""A file of any size in, a file of released vectors out: whole, in order, and paid for once.

Two passes. The first checks every row and adds up what each subject would be charged; a bad row or
a small budget ends it there, with nothing drawn and nothing spent. The second draws block by block.
A block's vectors go to a private folder beside the target, onto the disk; *then* the ledger is
charged; and only when every block is there and paid for does the target appear, by one rename.
So a run that was killed is taken up by running it again:

- killed before a block's part is on the disk: nothing was charged; the block is drawn again, and
  what was drawn before existed in memory only;
- killed after that, before the charge: the part is taken as it is, and charged;
- killed after the charge: the part is taken as it is, and is not charged again.

No block is drawn twice under one charge, and none leaves without one. The folder is readable by its
owner only and holds no texts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from capelet.data.streams import TEXT, is_named
from capelet.errors import CapeletError, DataError, OutputError
from capelet.files import check_writable
from capelet.interfaces import Progress, Vectors, silent
from capelet.privacy.guarantees import Guarantee, check_count
from capelet.privacy.store import Budget, BudgetError, Ledger
from capelet.release.parts import Parts, open_parts
from capelet.release.recipe import METADATA, PrivateEncoder, describe, recipe_hash
from capelet.release.rows import Block, LeaveOut, Source, join_digests

# Rows that are drawn, stored and charged together: what a kill can cost in time, and memory.
BLOCK = 2048

# The columns of the target, beside the subject's.
ROW, VECTOR = "row", "vector"

_IS_NEW = "drawn"  # a column of parts only: whether the vector is new, and so to be charged


@dataclass(frozen=True)
class Summary:
    """What became of a file: how many vectors were drawn, and how many were kept ones."""

    target: Path
    rows: int
    dimension: int
    drawn: int
    kept: int
    is_resumed: bool
    guarantee: Guarantee
    word_guarantee: Guarantee | None = None

    def sentence(self) -> str:
        again = f", {self.kept:,} of them kept from before" if self.kept else ""
        words = f"; also {self.word_guarantee.sentence()}" if self.word_guarantee else ""
        return (
            f"{self.rows:,} vectors of {self.dimension} dimensions{again}: "
            f"{self.guarantee.sentence()}{words}"
        )


def encode(
    source: Path | str,
    target: Path | str,
    private: PrivateEncoder,
    *,
    text: str | None = None,
    vectors: str | None = None,
    subject: str | None = None,
    ledger: Path | str | None = None,
    budget: float | Budget | None = None,
    fresh: bool = False,
    overwrite: bool = False,
    progress: Progress = silent,
    block: int = BLOCK,
    leave_out: LeaveOut | None = None,
) -> Summary:
    """Release a Parquet, CSV or JSONL file of texts or ready vectors, or a named set, as Parquet.

    The target has the row number, the vector and, where `subject` names a column, the subject;
    never the text. Guarantee and recipe stand in its metadata, and `Release.load` reads it. With a
    `ledger` each vector drawn is charged to its row's subject, who may not pass the `budget`; a
    text that was released before, by the same recipe for the same subject, comes back as it was
    and costs nothing, unless `fresh` asks, and pays, for new noise. Run the same call again after
    a crash and it goes on where it was. Rows that `leave_out` marks are not released
    (`release.overlap`: those that trained the encoder).
    """
    if is_named(source):
        if text is not None or vectors is not None:
            raise DataError(
                f"the set {str(source)!r} knows its own columns; give its file to choose others"
            )
        text = TEXT
    job = _Job(private, Path(source), Path(target), text, vectors, subject, fresh, block)
    job.source = replace(job.source, leave_out=leave_out)
    limit = budget if budget is None or isinstance(budget, Budget) else Budget(budget)
    _check_charging(job, ledger, limit)
    check_writable(job.target.parent)
    with ExitStack() as stack:
        book = stack.enter_context(Ledger(ledger)) if ledger is not None else None
        parts = stack.enter_context(open_parts(job.target))
        # Killed between the rename and the end: the target is whole and paid for, nothing is drawn.
        if not overwrite and (summary := _summary_of_last_run(job, parts)) is not None:
            return summary
        _check_target(job.target, overwrite)
        plan = _first_pass(job, parts, book, limit, overwrite, progress)
        _second_pass(job, plan, parts, book, limit, progress)
        return _assemble(job, plan, parts)


class _Job:
    """What was asked for, checked as far as that can be without reading the file."""

    def __init__(
        self,
        private: PrivateEncoder,
        source: Path,
        target: Path,
        text: str | None,
        vectors: str | None,
        subject: str | None,
        fresh: bool,
        block: int,
    ) -> None:
        self.private, self.target, self.subject = private, target, subject
        kind = private.consumes
        column, other = (text, vectors) if kind == "texts" else (vectors, text)
        if column is None or other is not None:
            raise CapeletError(
                f"the recipe begins with {kind}; name their column, and only that, with "
                f"{'text' if kind == 'texts' else 'vectors'}="
            )
        # Two columns of one name could not be told apart in the target.
        if subject in (ROW, VECTOR, _IS_NEW):
            raise CapeletError(
                f"the subject's column may not be called {subject!r}, which the output uses itself"
            )
        self.fresh = bool(fresh)
        self.source = Source(source, kind, column, subject, check_count("block", block))
        self.guarantee, self.recipe = private.guarantee, private.recipe
        self.word_guarantee = private.word_guarantee
        self.recipe_name = recipe_hash(self.recipe)

    def promises(self) -> dict[str, Any]:
        """What a summary says is guaranteed."""
        return {"guarantee": self.guarantee, "word_guarantee": self.word_guarantee}

    def facts(self) -> str:
        """What must be the same for a run to be taken up, beside the rows and the ledger."""
        source = self.source
        columns = [source.kind, source.column, source.subject, source.size]
        return json.dumps([self.recipe, columns, self.fresh], sort_keys=True)

    def schema(self, width: int) -> pa.Schema:
        """The columns of the target, with guarantee and recipe in the metadata."""
        fields = [(ROW, pa.int64()), (VECTOR, pa.list_(pa.float32(), width))]
        if self.subject is not None:
            fields.insert(1, (self.subject, pa.string()))
        description = describe(self.guarantee, self.recipe, self.word_guarantee)
        return pa.schema(fields, metadata={METADATA: description})


def _check_charging(job: _Job, ledger: Path | str | None, budget: Budget | None) -> None:
    """Refuse what cannot be charged as it was asked."""
    if ledger is None:
        if budget is not None or job.fresh:
            raise CapeletError("a budget, or fresh noise for known texts, needs a ledger")
        return
    if job.subject is None:
        raise CapeletError("a ledger needs the column of the subjects who are charged: subject=")
    promise = job.guarantee
    if promise.notion != "local" or promise.unit != "text":
        raise CapeletError(
            "a ledger charges people for whole texts, and this recipe promises "
            f"{promise.sentence()}; add a noise step on the vectors, or leave the ledger out"
        )


def _check_target(target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise OutputError(f"{str(target)!r} is a folder; name a file to write")
    if target.exists() and not overwrite:
        raise OutputError(f"{str(target)!r} is there already; choose another name or --overwrite")


# ---- the two passes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """What the first pass found: a digest of each block, and what is done already."""

    rows: int
    digests: Sequence[bytes]
    paid_blocks: frozenset[int]
    is_resumed: bool


def _first_pass(
    job: _Job,
    parts: Parts,
    book: Ledger | None,
    budget: Budget | None,
    overwrite: bool,
    progress: Progress,
) -> _Plan:
    """Check every row and every budget; nothing is drawn, and the ledger is only read."""
    is_resumed = parts.begin(job.facts(), book.identity if book else "", overwrite)
    # Without a ledger a block is finished when it is stored; with one, when it is charged.
    paid_blocks = book.paid_blocks(parts.run) if book else parts.stored_blocks
    # A part that was paid for is gone: begin, and pay, anew.
    if not paid_blocks <= parts.stored_blocks:
        parts.renew()
        is_resumed, paid_blocks = False, frozenset()
    with parts.counting():
        digests, rows = _count_needs(job, parts, book, paid_blocks, progress)
        same = parts.same_rows(join_digests(digests), overwrite)
        if same and book is not None:
            book.check(parts.needs(), job.guarantee, budget)
    # Other rows, and --overwrite: the old parts are dropped, and everything is counted again.
    if not same:
        parts.renew()
        return _first_pass(job, parts, book, budget, overwrite, progress)
    if book is not None:
        # Only now is the ledger's file made: a run that was refused leaves none behind.
        book.open()
        if budget is not None:
            book.limit(budget)
        parts.remember("ledger", book.identity)
    return _Plan(rows, digests, frozenset(paid_blocks), is_resumed)


def _count_needs(
    job: _Job, parts: Parts, book: Ledger | None, paid_blocks: Set[int], progress: Progress
) -> tuple[list[bytes], int]:
    """Check all rows; the digest of each block, and the rows of all; needs are added up."""
    digests, rows = [], 0
    for block in job.source.blocks(progress):
        digests.append(block.digest)
        rows += len(block)
        if book is not None and block.number not in paid_blocks:
            parts.count(_needs(job, block, parts, book))
    if not rows:
        raise DataError(f"{job.source.path.name!r} has no rows")
    return digests, rows


def _needs(job: _Job, block: Block, parts: Parts, book: Ledger) -> Counter[str]:
    """How many new vectors each subject of a block will be charged for."""
    if job.fresh:
        return Counter(block.subjects)
    names = block.names(book, job.recipe_name)
    # Also for a stored block: later blocks must find its texts among those seen.
    new = parts.unseen(names)
    # Drawn before the kill and not yet charged: its part says what will be charged.
    if block.number in parts.stored_blocks:
        return _new_by_subject(parts.read(block.number), job)
    old_vectors = book.find(names)
    rows = zip(block.subjects, names, new, strict=True)
    return Counter(who for who, name, first in rows if first and name not in old_vectors)


def _second_pass(
    job: _Job,
    plan: _Plan,
    parts: Parts,
    book: Ledger | None,
    budget: Budget | None,
    progress: Progress,
) -> None:
    """Draw what is not drawn, store it, charge what is not charged; block by block, in order."""
    place, rows = 0, 0
    for block in job.source.blocks():
        # Other rows than were checked and budgeted: nothing of them may leave.
        if plan.digests[place : place + 1] != [block.digest]:
            raise _change_error(job)
        place, rows = place + 1, rows + len(block)
        if block.number not in plan.paid_blocks:
            if block.number not in parts.stored_blocks:
                # Stored before it is charged: killed in between, the next run charges what is
                # stored. The other order would charge for vectors that are lost.
                parts.write(block.number, _draw(job, block, book))
            if book is not None:
                _charge(job, block, parts, book, budget)
        progress("releasing", rows, plan.rows)
    if place != len(plan.digests):
        raise _change_error(job)


def _draw(job: _Job, block: Block, book: Ledger | None) -> pa.Table:
    """The vectors of a block: kept ones as they are, all others with new noise."""
    names = [] if book is None or job.fresh else block.names(book, job.recipe_name)
    vectors_by_name = book.find(names) if book is not None else {}
    if names:
        # A text that comes twice for one subject is drawn once: the average of two draws would
        # have half the noise.
        first = {name: row for row, name in reversed(list(enumerate(names)))}
        rows = sorted(row for name, row in first.items() if name not in vectors_by_name)
    else:
        rows = list(range(len(block)))
    is_new = np.zeros(len(block), dtype=bool)
    is_new[rows] = True
    new = job.private.release(block.take(rows)).vectors if rows else np.zeros((0, 0))
    if names:
        vectors_by_name.update(
            zip((names[row] for row in rows), np.asarray(new, dtype=np.float32), strict=True)
        )
        new = np.stack([vectors_by_name[name] for name in names])
    return _table(job, block, new, is_new)


def _table(job: _Job, block: Block, vectors: Vectors, is_new: npt.NDArray[np.bool_]) -> pa.Table:
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
    columns: list[Any] = [pa.array(np.arange(block.start, block.start + len(block)))]
    if job.subject is not None:
        columns.append(pa.array(block.subjects, pa.string()))
    columns.append(pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]))
    table = pa.table(columns, schema=job.schema(vectors.shape[1]))
    return table.append_column(_IS_NEW, pa.array(is_new))


def _charge(job: _Job, block: Block, parts: Parts, book: Ledger, budget: Budget | None) -> None:
    """Charge a block for what its stored part holds, once."""
    part = parts.read(block.number)
    names, vectors = block.names(book, job.recipe_name), _matrix_of(part[VECTOR])
    new_rows = np.flatnonzero(part[_IS_NEW].to_numpy(zero_copy_only=False))
    # From the stored part, not from memory: the ledger keeps exactly what leaves.
    releases = ((names[row], vectors[row]) for row in new_rows)
    try:
        needs = _new_by_subject(part, job)
        book.charge(parts.run, block.number, needs, job.guarantee, budget=budget, releases=releases)
    except BudgetError as error:
        raise CapeletError(
            f"the ledger was changed by another process meanwhile: {error}. Nothing is written; "
            f"what was charged so far is kept, and the same command goes on from row {block.start}"
        ) from None


def _new_by_subject(part: pa.Table, job: _Job) -> Counter[str]:
    """How many vectors of a part are new, by subject."""
    return Counter(part.filter(part[_IS_NEW])[job.subject].to_pylist())


def _change_error(job: _Job) -> DataError:
    return DataError(
        f"{job.source.path.name!r} was changed while it was read; run the command again"
    )


# ---- the end -------------------------------------------------------------------------------------


def _assemble(job: _Job, plan: _Plan, parts: Parts) -> Summary:
    """Join the parts to one file, and let it out."""
    width = parts.read(0).schema.field(VECTOR).type.list_size
    new_vectors = 0
    with parts.whole(job.schema(width)) as writer:
        for number in range(len(plan.digests)):
            part = parts.read(number)
            new_vectors += int(np.count_nonzero(part[_IS_NEW]))
            # Which vectors are new would tell which texts were released before; it does not leave.
            writer.write_table(part.drop_columns([_IS_NEW]))
    old_vectors = plan.rows - new_vectors
    counts = {"rows": plan.rows, "dimension": width, "drawn": new_vectors, "kept": old_vectors}
    parts.let_out(json.dumps(counts))
    return Summary(job.target, **counts, is_resumed=plan.is_resumed, **job.promises())


def _summary_of_last_run(job: _Job, parts: Parts) -> Summary | None:
    """The summary of this run where it was killed just after its target appeared."""
    summary = parts.summary(job.facts())
    if not summary or parts.rows() != join_digests(block.digest for block in job.source.blocks()):
        return None
    parts.over = True
    return Summary(job.target, **json.loads(summary), is_resumed=True, **job.promises())


def _matrix_of(column: pa.ChunkedArray) -> Vectors:
    whole = column.combine_chunks()
    return whole.flatten().to_numpy().reshape(len(whole), -1)
