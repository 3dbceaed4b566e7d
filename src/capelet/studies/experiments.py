"""The papers' experiments, row by row: which plans run each again, or why none can.

`experiments.toml` lies beside the files of results and is written by hand; verdicts are not in it.
They are those of the results that its plans have, so that no verdict is typed. Its table `papers`
says which paper each short name is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from capelet.errors import CapeletError, OutputError
from capelet.studies.documents import read_entry

EXPERIMENTS = "experiments.toml"


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper; `reason` says why it is not tested, wholly or in part."""

    paper: str
    place: str
    content: str = ""
    plans: tuple[str, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.plans, tuple) or not (self.plans or self.reason):
            raise CapeletError(f"{self.paper} {self.place} has neither plans nor a reason")


@dataclass(frozen=True)
class Experiments:
    """The rows in their order, and the citation of each paper by its short name."""

    rows: tuple[Experiment, ...] = ()
    papers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Experiments:
        """What the file lists; nothing where there is no file."""
        if not path.is_file():
            return cls()
        try:
            content = tomllib.loads(path.read_text("utf-8"))
            papers = content.get("papers", {})
            if not isinstance(papers, dict) or not all(isinstance(p, str) for p in papers.values()):
                raise CapeletError("its papers are names with a citation each")
            entries = content["experiments"]
            return cls(
                tuple(read_entry(Experiment, entry, "experiments") for entry in entries), papers
            )
        except (CapeletError, KeyError, TypeError, ValueError) as error:
            raise OutputError(
                f"{str(path)!r} does not list experiments as it should: {error}"
            ) from None
