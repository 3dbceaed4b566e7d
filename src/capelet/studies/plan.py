"""A plan: a TOML file that says what is varied, at which sizes, and what should come out.

    name = "strategies"
    kind = "protect"
    title = "Six strategies on three corpora"
    exploratory = "one split had been seen when the claims were set"    # only where it is so

    [settings]                        # the same in every cell
    attackers = ["logistic", "kernel"]

    [axes]                            # every combination is a cell
    corpus = ["stance", "politices"]
    seed = [0, 1, 2]

    [[axes.group]]                    # groups stand beside each other: a method with its own ε
    method = ["fx", "gr"]
    [[axes.group]]
    method = ["ldp"]
    epsilon = [1, 8]

    [sizes.small]                     # fewer rows, some of the values of an axis
    rows = 600
    corpus = ["stance"]
    [sizes.full]

    [[claims]]                        # see `claims`
    [[tables]]                        # what the page shows: title, down, across, where
    [[analyses]]                      # of variance: factors, where
    [[differences]]                   # on the same victims: first, second, where
    [[matched]]                       # at equal utility: first, second, axis, utility, leakage

Everything that can be wrong with a plan is refused before anything runs.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from capelet.errors import CapeletError, did_you_mean, name_field
from capelet.studies.cell import Cell, canonical
from capelet.studies.claims import Claim
from capelet.studies.comparisons import Comparison
from capelet.studies.documents import check_keys, read_entry
from capelet.studies.kinds import KINDS, Kind
from capelet.studies.measurements.inputs import named_inputs
from capelet.studies.results import Analysis
from capelet.studies.sources import Source, corpus_and_digest
from capelet.studies.sweeps import MatchedComparison
from capelet.studies.tables import Layout

# Beyond so many cells a plan is a slip of the pen more often than a wish.
MOST_CELLS = 100_000
SIZES = ("small", "full")
# The method of cells without any: what all methods are compared with.
UNPROTECTED = "unprotected"
_SOURCES = ("corpus", "auxiliary")
_ENTRIES: dict[str, type] = {
    "claims": Claim,
    "tables": Layout,
    "analyses": Analysis,
    "differences": Comparison,
    "matched": MatchedComparison,
}
_SENTENCES = ("title", "paper", "headline", "stand_ins")

Axes = Mapping[str, Any]


@dataclass(frozen=True)
class PlannedCell:
    """A cell, and the values of the plan's axes that it stands for."""

    cell: Cell
    axes: Axes


@dataclass(frozen=True)
class StudyPlan:
    """What a study varies and claims; read with `StudyPlan.read`, made into cells with `cells`."""

    name: str
    kind: str
    settings: Mapping[str, Any]
    axes: Mapping[str, Sequence[Any]]
    groups: tuple[Mapping[str, Sequence[Any]], ...]
    sizes: Mapping[str, Mapping[str, Any]]
    title: str = ""
    paper: str = ""
    headline: str = ""
    claims: tuple[Claim, ...] = ()
    corpora: Mapping[str, Any] = field(default_factory=dict)
    releases: Mapping[str, Any] = field(default_factory=dict)
    blocks: tuple[str, ...] = ()
    tables: tuple[Layout, ...] = ()
    analyses: tuple[Analysis, ...] = ()
    differences: tuple[Comparison, ...] = ()
    matched: tuple[MatchedComparison, ...] = ()
    stand_ins: str = ""
    folder: Path = Path()
    exploratory: str = ""

    @classmethod
    def read(cls, path: Path | str) -> StudyPlan:
        """The plan of a TOML file; a `CapeletError` says what is wrong with it."""
        source = Path(path)
        try:
            document = tomllib.loads(source.read_bytes().decode())
        except OSError as error:
            raise CapeletError(
                f"cannot read the plan {str(path)!r} ({error.strerror}); give a TOML file"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CapeletError(f"the plan {str(path)!r} is not TOML: {error}") from None
        return cls.of(document, source.stem, source.resolve().parent)

    @classmethod
    def of(
        cls, document: Mapping[str, Any], name: str = "plan", folder: Path = Path()
    ) -> StudyPlan:
        """The same from a mapping; `folder` is where the files of its corpora are looked for."""
        own = {"groups", "folder"}  # of the record, and in no file
        keys = [item.name for item in fields(cls) if item.name not in own]
        check_keys(document, keys, "a plan")
        kind = document.get("kind")
        if kind not in KINDS:
            raise CapeletError(f"the plan's kind is {kind!r}; {did_you_mean(str(kind), KINDS)}")
        axes = _table(document, "axes")
        groups = axes.pop("group", [{}])
        if not isinstance(groups, list) or not all(isinstance(item, Mapping) for item in groups):
            raise CapeletError("groups of axes are tables of lists: [[axes.group]]")
        sizes = _table(document, "sizes")
        check_keys(sizes, SIZES, "the sizes of a plan")
        contents: dict[str, Any] = {
            key: tuple(read_entry(record, entry, key) for entry in document.get(key, ()))
            for key, record in _ENTRIES.items()
        }
        contents |= {key: str(document.get(key, "")) for key in _SENTENCES}
        # Split 0 of one corpus has other people than split 0 of another.
        with_corpora = any("corpus" in table for table in (axes, *groups))
        plan = cls(
            str(document.get("name", name)),
            kind,
            _table(document, "settings"),
            axes,
            tuple(groups),
            {size: _table(sizes, size, "sizes.") for size in SIZES},
            **contents,
            corpora=_table(document, "corpora"),
            releases=_table(document, "releases"),
            blocks=tuple(map(str, document.get("blocks", ["corpus"] if with_corpora else []))),
            folder=folder,
            exploratory=_exploratory(document),
        )
        plan._check_names()
        return plan

    def _check_names(self) -> None:
        """Axes are lists; axes, settings and sizes are keys of the kind."""
        keys = [*self.record.keys, *(["release"] if "steps" in self.record.keys else [])]
        what = f"a study of the kind {self.kind!r}"
        for axes in (self.axes, *self.groups):
            check_keys(axes, keys, what)
            for name, values in axes.items():
                if not isinstance(values, list):
                    raise CapeletError(f"the axis {name!r} must be a list of values")
        for table in (self.settings, *self.sizes.values()):
            check_keys(table, keys, what)
        self._check_releases()
        for item in self.matched:
            item.check(self.axis_names)
        for size, limits in self.sizes.items():
            for name, values in limits.items():
                if self._is_axis(name) and name != "seed":
                    self._check_limit(size, name, values)

    def _check_releases(self) -> None:
        from capelet.defences import METHODS

        names = {*METHODS, UNPROTECTED} if self.kind == "protect" else set()
        for name in names.intersection(self.releases):
            raise CapeletError(
                f"the plan has a release {name!r}, which is a method already; call it otherwise"
            )

    def _check_limit(self, size: str, name: str, values: Any) -> None:
        """A value that no axis has would silently leave nothing to measure."""
        levels = [value for axes in (self.axes, *self.groups) for value in axes.get(name, ())]
        if not isinstance(values, list):
            raise CapeletError(f"the size {size!r} gives the axis {name!r} a list of its values")
        for value in values:
            if value not in levels:
                raise CapeletError(
                    f"the size {size!r} names {value!r}, which the axis {name!r} does not have; "
                    f"{did_you_mean(str(value), map(str, levels))}"
                )

    @property
    def record(self) -> Kind:
        return KINDS[self.kind]

    @property
    def axis_names(self) -> tuple[str, ...]:
        """Every axis, in the order of the plan; the seed is a repetition and no axis."""
        names = dict.fromkeys(itertools.chain(self.axes, *self.groups))
        names.pop("seed", None)
        return tuple(names)

    def combinations(self, size: str = "full") -> Iterator[dict[str, Any]]:
        """The values of each combination, before names are looked up."""
        limits = {key: v for key, v in self.sizes[size].items() if not self._is_axis(key)}
        for axes in self._grids(size):
            for combination in itertools.product(*axes.values()):
                yield {**self.settings, **limits, **dict(zip(axes, combination, strict=True))}

    def _grids(self, size: str) -> Iterator[dict[str, Sequence[Any]]]:
        """Of each group of axes, the values that a size keeps."""
        for group in self.groups:
            axes = {**self.axes, **group}
            yield {name: _within(name, axes[name], self.sizes[size].get(name)) for name in axes}

    def _is_axis(self, name: str) -> bool:
        return name in self.axes or any(name in group for group in self.groups)

    def count(self, size: str = "full") -> int:
        """How many cells there will be, without unprotected ones."""
        return sum(math.prod(map(len, axes.values())) for axes in self._grids(size))

    def cells(self, size: str = "full", many: bool = False) -> list[PlannedCell]:
        """All cells, each once, with the unprotected ones that they are compared with.

        Refused: an empty grid, more than 100,000 cells unless `many`, and names of methods,
        encoders, sets, attackers that are not known.
        """
        if size not in SIZES:
            raise CapeletError(f"there is no size {size!r}; {did_you_mean(size, SIZES)}")
        number = self.count(size)
        if not number:
            raise CapeletError(
                f"the plan {self.name!r} has no cells at the size {size!r}: an axis is empty; give "
                "every axis at least one value"
            )
        if number > MOST_CELLS and not many:
            raise CapeletError(
                f"the plan {self.name!r} has {number:,} cells, more than {MOST_CELLS:,}; make it "
                f"smaller, or give {name_field('yes')}"
            )
        combinations = list(self.combinations(size))
        self._check_all(combinations)
        items: dict[str, PlannedCell] = {}
        for values in combinations:
            for item in self._cells_of(values):
                items.setdefault(item.cell.key, item)
        return list(items.values())

    def _check_all(self, combinations: Sequence[Mapping[str, Any]]) -> None:
        """Every name once, before any corpus is read."""
        seen: set[str] = set()
        for values in combinations:
            values_with_steps = self._with_steps(values)
            timeless = canonical(
                {key: item for key, item in values_with_steps.items() if key != "seed"}
            )
            if timeless in seen:
                continue
            seen.add(timeless)
            _check_seed(values.get("seed", 0))
            kind = self._kind_of(values)
            KINDS[kind].complete(kind, values_with_steps)
            if "encoder" in values_with_steps:
                # The name alone: weights are read when all names are known to be right.
                from capelet.encoders import load

                load(str(values_with_steps["encoder"]))
            for key in _SOURCES:
                if values_with_steps.get(key) is not None:
                    Source.of(str(values_with_steps[key]), self.corpora, self.folder)

    def _cells_of(self, values: Mapping[str, Any]) -> Iterator[PlannedCell]:
        axes = {name: _label(values[name]) for name in self.axis_names if name in values}
        cell = self._cell(self._kind_of(values), self._with_steps(values))
        if self.kind == "protect":
            shared = KINDS["audit"].keys
            before = {key: value for key, value in values.items() if key in shared}
            common = {key: axes[key] for key in axes if key in shared}
            yield PlannedCell(self._cell("audit", before), {**common, "method": UNPROTECTED})
        yield PlannedCell(cell, axes)

    def _cell(self, kind: str, values: Mapping[str, Any]) -> Cell:
        """The cell with what its names stand for today."""
        inputs = KINDS[kind].complete(kind, values)
        split = str(inputs.get("split", "auto"))
        sources = {
            key: Source.of(str(inputs[key]), self.corpora, self.folder).for_split(split)
            for key in _SOURCES
            if key in inputs
        }
        digests = {key: corpus_and_digest(item)[1] for key, item in sources.items()}
        inputs |= named_inputs(inputs, digests)
        return Cell(kind, KINDS[kind].version, inputs, sources)

    def _kind_of(self, values: Mapping[str, Any]) -> str:
        """Of a cell: a "method" that is one of the plan's releases trains nothing and is audited.

        So that roundings and bare noise stand in one table with what is learnt.
        """
        name = values.get("method")
        if self.kind != "protect" or name not in self.releases:
            return self.kind
        if values.get("epsilon") is not None:
            raise CapeletError(
                f"the release {name!r} has its steps in the plan and takes no epsilon; put it into "
                "a group without"
            )
        return "audit"

    def _with_steps(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values with the steps of a named release in the place of its name."""
        values_with_steps = dict(values)
        if self._kind_of(values) != self.kind:
            shared = KINDS["audit"].keys
            values_with_steps = {key: item for key, item in values.items() if key in shared}
            values_with_steps["release"] = values["method"]
        name = values_with_steps.pop("release", None)
        if name is None or name == "raw":
            return values_with_steps
        if name not in self.releases:
            hint = did_you_mean(str(name), ["raw", *self.releases])
            raise CapeletError(f"the plan has no release {name!r}, which it names; {hint}")
        return {**values_with_steps, "steps": self.releases[name].get("steps", [])}


def _exploratory(document: Mapping[str, Any]) -> str:
    """Why verdicts are no confirmation: what had been seen when the claims were written."""
    reason = document.get("exploratory", "")
    # `true` alone would leave a reader to guess what had been seen.
    if not isinstance(reason, str) or ("exploratory" in document and not reason.strip()):
        raise CapeletError(
            "'exploratory' of a plan is a sentence: what had been seen when its claims were set"
        )
    return reason


def _within(name: str, values: Sequence[Any], limit: Any) -> Sequence[Any]:
    """The values of an axis that a size keeps; seeds are free, others must be the axis' own."""
    if limit is None:
        return values
    if name == "seed":
        if not isinstance(limit, list):
            raise CapeletError("a size gives the seeds as a list")
        return limit
    return [value for value in values if value in limit]


def _table(document: Mapping[str, Any], key: str, above: str = "") -> dict[str, Any]:
    value = document.get(key, {})
    if not isinstance(value, Mapping):
        raise CapeletError(f"{key!r} of a plan must be a table: [{above}{key}]")
    return {str(name): item for name, item in value.items()}


def _check_seed(seed: Any) -> None:
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise CapeletError(f"a seed is {seed!r}; give whole numbers from 0 upwards")


def _label(value: Any) -> str | float:
    """A value of an axis as it stands in a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return value
    # Nothing held out is a level like others, and a name that can be read.
    return ("+".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
