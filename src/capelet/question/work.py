"""The records of long work: on which machines it is done, and where a study is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from capelet.question.fields import Rounds, check_fields


@dataclass(frozen=True)
class Machines:
    """Who works: processes of this machine, or a Ray cluster."""

    engine: str | None = None
    """Where the work is done: local (default) or ray (extra: ray)."""
    address: str | None = None
    """Of a Ray cluster, HOST:PORT or auto; without it one is begun."""
    workers: Rounds | None = None
    """How many work at once; all cores, but one process for a release on this machine."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class StudyFolders:
    """Which size of a plan is meant, and where its cells and its table are."""

    size: str | None = None
    """Which size of the plan, small or full: by default full, and small for a check."""
    out: Path | None = None
    """Folder of the table."""
    cells: Path | None = None
    """Folder of the cells, which studies may share; OUT/store."""
