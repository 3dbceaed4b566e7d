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
owner only and holds no texts. Of many files the target is a folder (`manifest`), and workers may
draw (`drawing`); blocks are settled here all the same, in order, and only here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capelet.data.folders import is_inside
from capelet.data.formats import Format
from capelet.data.streams import TEXT, is_named
from capelet.errors import CapeletError, DataError, OutputError, name_field
from capelet.files import check_writable
from capelet.interfaces import Progress, Vectors, silent
from capelet.ledger.anchors import with_anchor
from capelet.ledger.budgets import Budget, BudgetError
from capelet.ledger.settlement import undrawn
from capelet.ledger.store import Ledger
from capelet.release import manifest
from capelet.release.charging import Account, LookAlikes, Repeats, charging_of
from capelet.release.drawing import Drawer, Request, Workers, open_drawer
from capelet.release.jobs import ROW, VECTOR, Columns, Job, Summary, table_of
from capelet.release.partial_output import PartialOutput, open_output
from capelet.release.recipe import PrivateEncoder, matrix_of
from capelet.release.rows import LeaveOut, join_digests

__all__ = ["ROW", "VECTOR", "Summary", "Workers", "encode"]


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
    block: int | None = None,
    leave_out: LeaveOut | None = None,
    layout: Format | None = None,
    workers: Workers | None = None,
) -> Summary:
    """Release a Parquet, CSV or JSONL file of texts or ready vectors, or a named set, as Parquet.

    Or many Parquet files (a folder, a pattern, an address such as file:///data): the target is then
    a folder of parts and a manifest, and `workers` may draw them.

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
    charging = charging_of(ledger, budget, repeats, anchor)
    columns = Columns(text, vectors, subject, leave_out, layout)
    job = Job(private, source, _path_of(target), columns, charging, block)
    charging.check(subject, job.guarantee)
    check_writable(job.target.parent)
    _check_apart(job.target, source, charging.ledger, charging.anchor)
    if job.folder is not None:
        _check_outside(job.target, source)
    with ExitStack() as stack:
        account = None
        if charging.ledger is not None:
            book = stack.enter_context(Ledger(charging.ledger))
            stack.enter_context(with_anchor(book, charging.anchor))
            account = Account(book, charging.repeats, job.recipe_name)
        with open_output(job.target) as parts:
            summary = _Run(job, parts, account, overwrite, progress).summary(workers)
            # They are let out, and nobody will ask for them again; `same` ones stay: the next run
            # may ask. While the folder is there: a rerun after a kill still knows whose they are.
            # Not where the target was whole before: then they may be of a run that is not over.
            if account is not None and charging.repeats == "fresh" and parts.over:
                account.ledger.forget(parts.run)
        return summary


def _check_apart(target: Path, *inputs: Path | str | None) -> None:
    """Refuse to write onto what is read, also with --overwrite: it would be gone."""
    for path in inputs:
        there = path is not None and target.exists() and Path(path).exists()
        if path is not None and there and target.samefile(path):
            raise OutputError(
                f"{str(target)!r} is read by this very command, and would be overwritten; "
                "choose another name for the output"
            )


def _path_of(target: Path | str) -> Path:
    """The target as a path of this machine, also where it is written as file:///…."""
    name = str(target)
    if "://" in name and not name.startswith("file:///"):
        raise OutputError(
            f"cannot write to {name!r}: a release appears by a rename, which only a file system "
            "has; give a folder, and copy it where it is to go when it is whole"
        )
    return Path(name.removeprefix("file://"))


def _check_outside(target: Path, source: Path | str) -> None:
    """Refuse a target among the files that are read: the next run would release it, too."""
    if is_inside(target, source):
        raise OutputError(
            f"{str(target)!r} lies in the folder that is read; choose a place outside of it"
        )


def _check_target(target: Path, overwrite: bool) -> None:
    if target.is_dir():
        raise OutputError(f"{str(target)!r} is a folder; name a file to write")
    if target.exists() and not overwrite:
        raise OutputError(
            f"{str(target)!r} is there already; choose another name or {name_field('overwrite')}"
        )


# ---- the two passes ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _FirstPass:
    """What the first pass found: where blocks start, and the last ends; digests; warnings."""

    starts: Sequence[int]
    digests: Sequence[bytes]
    is_resumed: bool
    warnings: tuple[str, ...]

    @property
    def rows(self) -> int:
        return self.starts[-1]


@dataclass(frozen=True, eq=False)
class _Run:
    """One run: what was asked, where its parts wait, and the ledger that charges for them."""

    job: Job
    parts: PartialOutput
    account: Account | None
    overwrite: bool
    progress: Progress

    def summary(self, workers: Workers | None) -> Summary:
        """Release what is not yet released, and let all of it out."""
        job = self.job
        # Killed between the rename and the end: the target is whole and paid for, nothing is drawn.
        is_fixed = job.folder is not None or not self.overwrite  # a folder is never overwritten
        if is_fixed and (summary := self._of_last_run()) is not None:
            return summary
        if job.folder is None:
            _check_target(job.target, self.overwrite)
        elif (summary := self._of_target()) is not None:
            return summary
        # Before the first pass: a cluster that is not there is known at once.
        with open_drawer(job, self.parts, workers) as drawer:
            first = self._first_pass()
            self._second_pass(first, drawer)
        return self._assemble(first)

    @property
    def _identity(self) -> str:
        return self.account.ledger.identity if self.account else ""

    def _first_pass(self) -> _FirstPass:
        """Check every row and every budget; nothing is drawn, and the ledger is only read."""
        job, parts = self.job, self.parts
        book = self.account.ledger if self.account else None
        is_resumed = parts.begin(job.facts(), self._identity, self.overwrite)
        with parts.counting():
            first = self._count(is_resumed)
            same = parts.same_rows(join_digests(first.digests), self.overwrite)
            if same and book is not None:
                book.check(parts.needs(), job.guarantee, job.charging.budget)
        # Other rows, and --overwrite: the old parts are dropped, and everything is counted again.
        if not same:
            parts.renew()
            return self._first_pass()
        if book is not None:
            # Only now is the ledger's file made: a run that was refused leaves none behind.
            book.open()
            if job.charging.budget is not None:
                book.limit(job.charging.budget)
            parts.remember("ledger", book.identity)
        return first

    def _count(self, is_resumed: bool) -> _FirstPass:
        """Check all rows; add up what each person needs, and notice people who look alike."""
        source, account = self.job.source, self.account
        digests, starts, alike = [], [0], LookAlikes()
        for block in source.blocks(self.progress):
            digests.append(block.digest)
            starts.append(block.start + len(block))
            if account is not None:
                alike.look(block, self.parts, account.ledger)
                self.parts.count(account.needs(block, self.parts, is_resumed))
        if not digests:
            raise DataError(f"{source.name!r} has no rows")
        empty = source.empty_rows()
        left_out = [f"{empty:,} rows were left out: they are empty"] if empty else []
        return _FirstPass(starts, digests, is_resumed, (*left_out, *alike.warnings()))

    def _second_pass(self, first: _FirstPass, drawer: Drawer) -> None:
        """Draw what is not drawn, settle it, write it down; block by block, in order."""
        rows, pending = 0, set[bytes]()
        for request, draws in drawer.draw(self._requests(first, pending)):
            block = request.block
            if self.account is not None:
                self._settle(request, draws, self.account.ledger)
                pending.difference_update(request.names)
            elif len(request.rows):
                self.parts.write(block.number, table_of(self.job, block, draws))
            rows += len(block)
            self.progress("releasing", rows, first.rows)

    def _requests(self, first: _FirstPass, pending: set[bytes]) -> Iterator[Request]:
        """Each block with the rows that nobody has drawn: repeats are taken out before the draw.

        `pending` are the names that were asked for and are not settled: a drawer may read ahead,
        and a text of a block ahead may be one of them.
        """
        place = 0
        for block in self.job.source.blocks():
            # Other rows than were checked and budgeted: nothing of them may leave.
            if first.digests[place : place + 1] != [block.digest]:
                raise self._change_error()
            place += 1
            is_stored = block.number in self.parts.stored_blocks
            names: Sequence[bytes] = ()
            rows: Sequence[int] = () if is_stored else range(len(block))
            if self.account is not None:
                names = self.account.names_of(block, self.parts.run)
                known = () if is_stored else self.account.ledger.names_among(names)
                rows = () if is_stored else undrawn(names, known, pending)
                pending.update(names[row] for row in rows)
            yield Request(block, names, rows)
        if place != len(first.digests):
            raise self._change_error()

    def _settle(self, request: Request, draws: Vectors, book: Ledger) -> None:
        """Charge for a block and keep it, both or neither; the part is what the ledger returns."""
        job, parts, block = self.job, self.parts, request.block
        is_stored = block.number in parts.stored_blocks
        # A part that lies there was settled. It is settled again all the same, which costs nothing,
        # unless the ledger was put back to an older state: then it is charged once more.
        if is_stored:
            vectors = matrix_of(parts.read(block.number)[VECTOR])
        else:
            vectors = _fill(request, draws, book)
        parts.begin_charging()
        try:
            settlement = book.settle(
                block.subjects,
                request.names,
                vectors,
                job.guarantee,
                run=parts.run,
                budget=job.charging.budget,
            )
        except BudgetError as error:
            raise CapeletError(
                "the ledger was changed by another process meanwhile: "
                f"{error.from_row(block.start)}. Nothing is written; what was charged so far is "
                f"kept, and the same command goes on from row {block.start}"
            ) from None
        if not is_stored or not np.array_equal(settlement.vectors, vectors):
            parts.write(block.number, table_of(job, block, settlement.vectors))

    def _change_error(self) -> DataError:
        name = self.job.source.name
        return DataError(f"{name!r} was changed while it was read; run the command again")

    # ---- the end ----

    def _assemble(self, first: _FirstPass) -> Summary:
        """Join the parts to one file, or gather them in one folder, and let it out."""
        job, parts = self.job, self.parts
        width = parts.read(0).schema.field(VECTOR).type.list_size
        if job.folder is None:
            with parts.whole(job.schema(width)) as writer:
                for number in range(len(first.digests)):
                    writer.write_table(parts.read(number))
        else:
            name = manifest.plan_of(job, join_digests(first.digests), self._identity)
            manifest.gather(job, parts, first.starts, name, width)
        draws, highest = first.rows, None
        if self.account is not None:
            draws = self.account.ledger.releases_of(parts.run)
            highest = self.account.ledger.counts().highest_epsilon
        content: dict[str, Any] = {
            "rows": first.rows,
            "dimension": width,
            "drawn": draws,
            "kept": first.rows - draws,
            "highest_epsilon": highest,
            "warnings": first.warnings,
        }
        parts.let_out(json.dumps(content))
        return Summary(job.target, **content, is_resumed=first.is_resumed, **job.promises())

    def _of_last_run(self) -> Summary | None:
        """The summary of this run where it was killed just after its target appeared."""
        summary = self.parts.summary(self.job.facts())
        if not summary or self.parts.rows() != self._digest_of_rows():
            return None
        self.parts.over = True
        content = json.loads(summary)
        content["warnings"] = tuple(content["warnings"])
        return Summary(self.job.target, **content, is_resumed=True, **self.job.promises())

    def _of_target(self) -> Summary | None:
        """The summary where the target is this very run, finished; other content is refused."""
        target = self.job.target
        if target.exists() and not target.is_dir():
            raise OutputError(f"{str(target)!r} is a file; name a folder for the parts")
        if not target.exists() or not any(target.iterdir()):
            return None
        content = manifest.read(target)
        plan = manifest.plan_of(self.job, self._digest_of_rows(), self._identity)
        if content is None or not manifest.is_same_run(content, plan):
            raise OutputError(
                f"the folder {str(target)!r} is not empty, and not of this run; choose another "
                "(a folder that was released is never overwritten)"
            )
        manifest.check_parts(target, content)
        total = int(content["rows"])
        highest = self.account.ledger.counts().highest_epsilon if self.account else None
        return Summary(
            target, total, content["dimension"], 0, total, True, **self.job.promises(),
            highest_epsilon=highest,
        )  # fmt: skip

    def _digest_of_rows(self) -> str:
        return join_digests(block.digest for block in self.job.source.blocks())


def _fill(request: Request, draws: Vectors, book: Ledger) -> Vectors:
    """A vector for each row: stored ones as they are, the draws for all others."""
    by_name = book.find(request.names)
    for row, draw in zip(request.rows, draws, strict=True):
        by_name.setdefault(request.names[row], draw)
    if not all(name in by_name for name in request.names):
        raise CapeletError(
            "the ledger was changed by another process meanwhile: releases that it held are gone; "
            f"the same command goes on from row {request.block.start}"
        )
    return np.stack([by_name[name] for name in request.names])
