"""A file of any size in, a file of released vectors out: whole, in order, and paid for once.

Two passes. The first checks every row and adds up what each person would be charged; a bad row or
a small budget ends it there, with nothing drawn and nothing spent. The second draws block by block.
A block is settled with the ledger, which charges for it and keeps it in one transaction; what the
ledger *returns* is written to a private folder beside the target; and only when every block is
there does the target appear, by one rename. So a run that was killed is taken up by running it
again:

- killed before a block is settled: nothing was charged; the block is drawn again, and what was
  drawn before existed in memory only;
- killed after that: whatever is drawn again is dropped, and the ledger's vectors are taken; they
  are stored under the run's name, which lies in the folder, and cost nothing more.

No block is drawn twice under one charge, and none leaves without one. The folder is readable by its
owner only and holds no texts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capelet.data.formats import Format
from capelet.data.streams import TEXT, is_named
from capelet.errors import CapeletError, DataError, OutputError
from capelet.files import check_writable
from capelet.interfaces import Progress, Vectors, silent
from capelet.privacy.anchors import with_anchor
from capelet.privacy.budgets import Budget, BudgetError
from capelet.privacy.guarantees import Guarantee, check_count
from capelet.privacy.store import Ledger
from capelet.release.charging import Account, Charging, LookAlikes, Repeats, charging_of
from capelet.release.parts import Parts, open_parts
from capelet.release.recipe import METADATA, PrivateEncoder, describe, recipe_hash
from capelet.release.rows import Block, LeaveOut, Source, join_digests

# Rows that are drawn, stored and charged together: what a kill can cost in time, and memory.
BLOCK = 2048

# The columns of the target, beside the subject's.
ROW, VECTOR = "row", "vector"


@dataclass(frozen=True)
class Summary:
    """What became of a file: how many vectors were drawn, and how many were kept ones.

    `highest_epsilon` is the highest sum of one person in the ledger; `warnings` are sentences that
    point at rows.
    """

    target: Path
    rows: int
    dimension: int
    drawn: int
    kept: int
    is_resumed: bool
    guarantee: Guarantee
    word_guarantee: Guarantee | None = None
    highest_epsilon: float | None = None
    warnings: tuple[str, ...] = ()

    def sentence(self) -> str:
        again = f", {self.kept:,} of them kept from before" if self.kept else ""
        words = f"; also {self.word_guarantee.sentence()}" if self.word_guarantee else ""
        highest = "" if self.highest_epsilon is None else f"{self.highest_epsilon:g}"
        total = f"; the ledger's highest sum is ε = {highest} per person" if highest else ""
        return (
            f"{self.rows:,} vectors of {self.dimension} dimensions{again}: "
            f"{self.guarantee.sentence()}{words}{total}"
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
    repeats: Repeats | None = None,
    anchor: Path | str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
    block: int = BLOCK,
    fresh: bool | None = None,
    leave_out: LeaveOut | None = None,
    layout: Format | None = None,
) -> Summary:
    """Release a Parquet, CSV or JSONL file of texts or ready vectors, or a named set, as Parquet.

    The target has the row number, the vector and, where `subject` names a column, the subject;
    never the text. Guarantee and recipe stand in its metadata, and `Release.load` reads it. With a
    `ledger` each vector drawn is charged to its row's subject, who may not pass the `budget`; an
    `anchor` file tells whether the ledger was shortened since. `repeats` is "fresh" by default:
    each row is drawn and paid for. With "same" a text that was released before, by the same recipe
    for the same subject, comes back as it was and costs nothing, and the guarantee says that this
    shows which texts are equal. Run the same call again after a crash and it goes on where it was.
    Rows that `leave_out` marks (`release.overlap`: those that trained) are not released. `layout`
    is how a text file is written down, and whether rows that are empty are left out.
    """
    if is_named(source):
        if text is not None or vectors is not None:
            raise DataError(
                f"the set {str(source)!r} knows its own columns; give its file to choose others"
            )
        text = TEXT
    if private.guarantee.status == "none" and private.guarantee.notion != "none":
        raise CapeletError(
            "the noise of this encoder is seeded and promises nothing; a file is released with "
            "noise that nobody can repeat: give the private encoder itself"
        )
    charging = charging_of(ledger, budget, repeats, anchor, fresh)
    job = _Job(private, Path(source), Path(target), text, vectors, subject, charging, block)
    job.source = replace(job.source, leave_out=leave_out, layout=layout or Format())
    charging.check(subject, job.guarantee)
    check_writable(job.target.parent)
    _check_apart(job.target, source, charging.ledger, charging.anchor)
    with ExitStack() as stack:
        account = None
        if charging.ledger is not None:
            book = stack.enter_context(Ledger(charging.ledger))
            stack.enter_context(with_anchor(book, charging.anchor))
            account = Account(book, charging, job.recipe_name)
        with open_parts(job.target) as parts:
            summary, run = _release(job, parts, account, overwrite, progress), parts.run
        # The folder is gone, and with it the only way to ask for these vectors again. `same` ones
        # stay: the next run may ask.
        if account is not None and charging.repeats == "fresh":
            account.ledger.forget(run)
        return summary


def _release(
    job: _Job, parts: Parts, account: Account | None, overwrite: bool, progress: Progress
) -> Summary:
    # Killed between the rename and the end: the target is whole and paid for, nothing is drawn.
    if not overwrite and (summary := _summary_of_last_run(job, parts)) is not None:
        return summary
    _check_target(job.target, overwrite)
    plan = _first_pass(job, parts, account, overwrite, progress)
    _second_pass(job, plan, parts, account, progress)
    return _assemble(job, plan, parts, account)


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
        charging: Charging,
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
        if subject in (ROW, VECTOR):
            raise CapeletError(
                f"the subject's column may not be called {subject!r}, which the output uses itself"
            )
        self.charging = charging
        self.source = Source(source, kind, column, subject, check_count("block", block))
        self.guarantee, self.recipe = charging.promise(private.guarantee), private.recipe
        words = private.word_guarantee
        self.word_guarantee = None if words is None else charging.promise(words)
        self.recipe_name = recipe_hash(self.recipe)

    def promises(self) -> dict[str, Any]:
        """What a summary says is guaranteed."""
        return {"guarantee": self.guarantee, "word_guarantee": self.word_guarantee}

    def facts(self) -> str:
        """What must be the same for a run to be taken up, beside the rows and the ledger."""
        source = self.source
        columns = [source.kind, source.column, source.subject, source.size]
        return json.dumps([self.recipe, columns, self.charging.repeats], sort_keys=True)

    def schema(self, width: int) -> pa.Schema:
        """The columns of the target, with guarantee and recipe in the metadata."""
        fields = [(ROW, pa.int64()), (VECTOR, pa.list_(pa.float32(), width))]
        if self.subject is not None:
            fields.insert(1, (self.subject, pa.string()))
        description = json.loads(describe(self.guarantee, self.recipe, self.word_guarantee))
        metadata = json.dumps({**description, "repeats": self.charging.repeats}, sort_keys=True)
        return pa.schema(fields, metadata={METADATA: metadata.encode()})


def _check_apart(target: Path, *inputs: Path | str | None) -> None:
    """Refuse to write onto what is read, also with --overwrite: it would be gone."""
    for path in inputs:
        there = path is not None and target.exists() and Path(path).exists()
        if path is not None and there and target.samefile(path):
            raise OutputError(
                f"{str(target)!r} is read by this very command, and would be overwritten; "
                "choose another name for the output"
            )


def _check_target(target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise OutputError(f"{str(target)!r} is a folder; name a file to write")
    if target.exists() and not overwrite:
        raise OutputError(f"{str(target)!r} is there already; choose another name or --overwrite")


# ---- the two passes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """What the first pass found: a digest of each block, and what to warn of."""

    rows: int
    digests: Sequence[bytes]
    is_resumed: bool
    warnings: tuple[str, ...]


def _first_pass(
    job: _Job, parts: Parts, account: Account | None, overwrite: bool, progress: Progress
) -> _Plan:
    """Check every row and every budget; nothing is drawn, and the ledger is only read."""
    book = account.ledger if account else None
    is_resumed = parts.begin(job.facts(), book.identity if book else "", overwrite)
    with parts.counting():
        plan = _count(job, parts, account, is_resumed, progress)
        same = parts.same_rows(join_digests(plan.digests), overwrite)
        if same and book is not None:
            book.check(parts.needs(), job.guarantee, job.charging.budget)
    # Other rows, and --overwrite: the old parts are dropped, and everything is counted again.
    if not same:
        parts.renew()
        return _first_pass(job, parts, account, overwrite, progress)
    if book is not None:
        # Only now is the ledger's file made: a run that was refused leaves none behind.
        book.open()
        if job.charging.budget is not None:
            book.limit(job.charging.budget)
        parts.remember("ledger", book.identity)
    return plan


def _count(
    job: _Job, parts: Parts, account: Account | None, is_resumed: bool, progress: Progress
) -> _Plan:
    """Check all rows; add up what each person needs, and notice people who look alike."""
    digests, rows, alike = [], 0, LookAlikes()
    for block in job.source.blocks(progress):
        digests.append(block.digest)
        rows += len(block)
        if account is not None:
            alike.look(block, parts, account.ledger)
            parts.count(account.needs(block, parts, is_resumed))
    if not rows:
        raise DataError(f"{job.source.path.name!r} has no rows")
    empty = job.source.empty_rows()
    left_out = [f"{empty:,} rows were left out: they are empty"] if empty else []
    return _Plan(rows, digests, is_resumed, (*left_out, *alike.warnings()))


def _second_pass(
    job: _Job, plan: _Plan, parts: Parts, account: Account | None, progress: Progress
) -> None:
    """Draw what is not drawn, settle it, write it down; block by block, in order."""
    place, rows = 0, 0
    for block in job.source.blocks():
        # Other rows than were checked and budgeted: nothing of them may leave.
        if plan.digests[place : place + 1] != [block.digest]:
            raise _change_error(job)
        place, rows = place + 1, rows + len(block)
        if account is not None:
            _settle(job, block, parts, account)
        elif block.number not in parts.stored_blocks:
            parts.write(block.number, _table(job, block, job.private.release(block.values).vectors))
        progress("releasing", rows, plan.rows)
    if place != len(plan.digests):
        raise _change_error(job)


def _settle(job: _Job, block: Block, parts: Parts, account: Account) -> None:
    """Charge for a block and keep it, both or neither; the part is what the ledger returns."""
    names = account.names(block, parts.run)
    is_stored = block.number in parts.stored_blocks
    # A part that lies there was settled. It is settled again all the same, which costs nothing,
    # unless the ledger was put back to an older state: then it is charged once more.
    if is_stored:
        vectors = _matrix_of(parts.read(block.number)[VECTOR])
    else:
        vectors = _draw(job, block, names, account.ledger)
    parts.begin_charging()
    try:
        settlement = account.ledger.settle(
            block.subjects,
            names,
            vectors,
            job.guarantee,
            run=parts.run,
            budget=job.charging.budget,
        )
    except BudgetError as error:
        raise CapeletError(
            "the ledger was changed by another process meanwhile: "
            f"{error.from_row(block.start)}. Nothing is written; what was charged so far is kept, "
            f"and the same command goes on from row {block.start}"
        ) from None
    if not is_stored or not np.array_equal(settlement.vectors, vectors):
        parts.write(block.number, _table(job, block, settlement.vectors))


def _draw(job: _Job, block: Block, names: Sequence[bytes], book: Ledger) -> Vectors:
    """A vector for each row: stored ones as they are, all others with new noise.

    A name that comes twice is drawn once: the average of two draws would have half the noise.
    """
    by_name = book.find(names)
    first = {name: row for row, name in reversed(list(enumerate(names))) if name not in by_name}
    rows = sorted(first.values())
    if rows:
        draws = np.asarray(job.private.release(block.take(rows)).vectors, dtype=np.float32)
        by_name.update(zip((names[row] for row in rows), draws, strict=True))
    return np.stack([by_name[name] for name in names])


def _table(job: _Job, block: Block, vectors: Vectors) -> pa.Table:
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).ravel())
    columns: list[Any] = [pa.array(np.asarray(block.numbers))]
    if job.subject is not None:
        columns.append(pa.array(block.subjects, pa.string()))
    columns.append(pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]))
    return pa.table(columns, schema=job.schema(vectors.shape[1]))


def _change_error(job: _Job) -> DataError:
    return DataError(
        f"{job.source.path.name!r} was changed while it was read; run the command again"
    )


# ---- the end -------------------------------------------------------------------------------------


def _assemble(job: _Job, plan: _Plan, parts: Parts, account: Account | None) -> Summary:
    """Join the parts to one file, and let it out."""
    width = parts.read(0).schema.field(VECTOR).type.list_size
    with parts.whole(job.schema(width)) as writer:
        for number in range(len(plan.digests)):
            writer.write_table(parts.read(number))
    draws, highest = plan.rows, None
    if account is not None:
        draws = account.ledger.releases_of(parts.run)
        highest = account.ledger.counts().highest_epsilon
    content: dict[str, Any] = {
        "rows": plan.rows,
        "dimension": width,
        "drawn": draws,
        "kept": plan.rows - draws,
        "highest_epsilon": highest,
        "warnings": plan.warnings,
    }
    parts.let_out(json.dumps(content))
    return Summary(job.target, **content, is_resumed=plan.is_resumed, **job.promises())


def _summary_of_last_run(job: _Job, parts: Parts) -> Summary | None:
    """The summary of this run where it was killed just after its target appeared."""
    summary = parts.summary(job.facts())
    if not summary or parts.rows() != join_digests(block.digest for block in job.source.blocks()):
        return None
    parts.over = True
    content = json.loads(summary)
    content["warnings"] = tuple(content["warnings"])
    return Summary(job.target, **content, is_resumed=True, **job.promises())


def _matrix_of(column: pa.ChunkedArray) -> Vectors:
    whole = column.combine_chunks()
    return whole.flatten().to_numpy().reshape(len(whole), -1)
