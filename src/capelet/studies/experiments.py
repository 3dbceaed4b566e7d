"""The papers' experiments, row by row: which plans run each again, or why none can.

`experiments.toml` lies beside the files of results and is written by hand; verdicts are not in it.
They are those of the results that its plans have, so that no verdict is typed. Its table `papers`
says which paper each short name is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from capelet.errors import OutputError
from capelet.reports.markdown import escape
from capelet.studies.documents import UNTESTED

EXPERIMENTS = "experiments.toml"
_KEYS = {"paper", "place", "content", "plans", "reason"}


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper; `reason` says why it is not tested, wholly or in part."""

    paper: str
    place: str
    content: str
    plans: tuple[str, ...] = ()
    reason: str = ""

    def state(self, verdicts: Mapping[str, str]) -> str:
        """In Markdown: the verdict of each of its plans, or why there is none."""
        parts = [
            f"[{verdicts[name]}]({name}.md)"
            if name in verdicts
            else f"`papers/{name.replace('-', '/', 1)}.toml`: not run at its full size yet"
            for name in self.plans
        ]
        if self.reason:
            # A row with plans has verdicts of its own; the reason is then about the rest.
            parts.append(escape(self.reason if parts else f"{UNTESTED}: {self.reason}"))
        return " · ".join(parts)


def read_experiments(path: Path) -> list[Experiment]:
    """The rows of the file in their order; none where there is no file."""
    if not path.is_file():
        return []
    try:
        entries = tomllib.loads(path.read_text("utf-8"))["experiments"]
        return [_experiment(entry) for entry in entries]
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise OutputError(
            f"{str(path)!r} does not list experiments as it should: {error}"
        ) from None


def read_papers(path: Path) -> dict[str, str]:
    """The citation of each paper by its short name; none where there is no file."""
    if not path.is_file():
        return {}
    try:
        papers = tomllib.loads(path.read_text("utf-8")).get("papers", {})
        if not isinstance(papers, dict) or not all(isinstance(it, str) for it in papers.values()):
            raise ValueError("its papers are names with a citation each")
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise OutputError(f"{str(path)!r} does not cite papers as it should: {error}") from None
    return papers


def _experiment(entry: Mapping[str, object]) -> Experiment:
    unknown = sorted(set(entry) - _KEYS)
    if unknown:
        raise ValueError(f"an experiment has no {unknown[0]!r}")
    plans = entry.get("plans", [])
    if not isinstance(plans, list) or not (plans or entry.get("reason")):
        raise ValueError(f"{entry['paper']} {entry['place']} has neither plans nor a reason")
    paper, place, content, reason = (
        str(entry.get(name, "")) for name in ("paper", "place", "content", "reason")
    )
    return Experiment(paper, place, content, tuple(map(str, plans)), reason)


def experiments_table(experiments: Sequence[Experiment], verdicts: Mapping[str, str]) -> str:
    """The table of the index: every row of every paper, with what came of it."""
    lines = [
        "| paper | table, figure | what is in it | verdict here |",
        "| --- | --- | --- | --- |",
        *(
            f"| {escape(item.paper)} | {escape(item.place)} | {escape(item.content)} | "
            f"{item.state(verdicts)} |"
            for item in experiments
        ),
    ]
    return "\n".join(lines)
