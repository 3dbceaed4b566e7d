"""What was asked of a release, and what became of it; the columns of what leaves."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from capelet.data.folders import is_folder
from capelet.data.formats import Format
from capelet.errors import CapeletError, name_field
from capelet.interfaces import Vectors
from capelet.privacy.guarantees import Guarantee, check_count
from capelet.release.charging import Charging, promise_of
from capelet.release.recipe import METADATA, PrivateEncoder, column_of, describe, recipe_hash
from capelet.release.rows import Block, FolderSource, LeaveOut, source_of

# Rows that are drawn, stored and charged together: what a kill can cost in time, and memory.
BLOCK = 2048
# Of a folder a block is also a task and a file of the target. 10⁸ rows make 6,104 of them, of 25 MB
# at 384 dimensions: seconds of work each, beside which scheduling is nothing.
FOLDER_BLOCK = 16_384

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


@dataclass(frozen=True)
class Columns:
    """Which columns and rows of a source are read, and how its text is written down."""

    text: str | None = None
    vectors: str | None = None
    subject: str | None = None
    leave_out: LeaveOut | None = None
    layout: Format | None = None


class Job:
    """What was asked for, checked as far as that can be without reading the file."""

    def __init__(
        self,
        private: PrivateEncoder,
        source: Path | str,
        target: Path,
        columns: Columns,
        charging: Charging,
        block: int | None = None,
    ) -> None:
        self.private, self.target, self.subject = private, target, columns.subject
        kind, subject = private.consumes, columns.subject
        text, vectors = columns.text, columns.vectors
        column, other = (text, vectors) if kind == "texts" else (vectors, text)
        if column is None or other is not None:
            raise CapeletError(
                f"the recipe begins with {kind}; name their column, and only that, with "
                + name_field("text" if kind == "texts" else "vectors")
            )
        # Two columns of one name could not be told apart in the target.
        if subject in (ROW, VECTOR):
            raise CapeletError(
                f"the subject's column may not be called {subject!r}, which the output uses itself"
            )
        self.charging = charging
        self.columns = [kind, column, subject]
        size = FOLDER_BLOCK if is_folder(source) else BLOCK
        size = size if block is None else check_count("block", block)
        self.source = source_of(
            source, kind, column, subject, size, columns.layout, columns.leave_out
        )
        self.recipe = private.recipe
        self.guarantee = promise_of(private.guarantee, charging.repeats)
        words = private.word_guarantee
        self.word_guarantee = None if words is None else promise_of(words, charging.repeats)
        self.recipe_name = recipe_hash(self.recipe)

    @property
    def folder(self) -> FolderSource | None:
        """The source where it is many files, and the target a folder; else None."""
        return self.source if isinstance(self.source, FolderSource) else None

    def promises(self) -> dict[str, Any]:
        """What a summary says is guaranteed."""
        return {"guarantee": self.guarantee, "word_guarantee": self.word_guarantee}

    def facts(self) -> str:
        """What must be the same for a run to be taken up, beside the rows and the ledger."""
        columns: list[Any] = [*self.columns, self.source.size]
        # A folder of one file is another run than the file: it has another target.
        columns += ["folder"] if self.folder is not None else []
        return json.dumps([self.recipe, columns, self.charging.repeats], sort_keys=True)

    def description(self) -> dict[str, Any]:
        """What the target says about itself: guarantee, recipe, what became of repeats."""
        description = json.loads(describe(self.guarantee, self.recipe, self.word_guarantee))
        return {**description, "repeats": self.charging.repeats}

    def schema(self, width: int) -> pa.Schema:
        """The columns of the target, with guarantee and recipe in the metadata."""
        fields = [(ROW, pa.int64()), (VECTOR, pa.list_(pa.float32(), width))]
        if self.subject is not None:
            fields.insert(1, (self.subject, pa.string()))
        metadata = json.dumps(self.description(), sort_keys=True)
        return pa.schema(fields, metadata={METADATA: metadata.encode()})


def table_of(job: Job, block: Block, vectors: Vectors) -> pa.Table:
    """A block as it leaves: row numbers, subjects where they were asked for, vectors."""
    columns: list[Any] = [pa.array(np.asarray(block.numbers))]
    if job.subject is not None:
        columns.append(pa.array(block.subjects, pa.string()))
    columns.append(column_of(vectors))
    return pa.table(columns, schema=job.schema(vectors.shape[1]))
