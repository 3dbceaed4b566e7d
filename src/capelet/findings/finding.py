"""Findings: one tidy row per measurement, with its controls beside it; versioned JSON.

A run's result is a `Findings` value: the rows, where they came from (`provenance`), the recipe that
was measured, and the artefacts (points and curves) that pictures are drawn from. A report is a pure
function of it. On disk: `findings.json` and one JSON file per artefact in `artefacts/`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from capelet.errors import MissingExtra, OutputError
from capelet.files import inner_folder, writable_folder, write_whole
from capelet.findings.documents import SCHEMA, OtherSchemaError, check_document, parse_json

FILE, ARTEFACTS = "findings.json", "artefacts"


@dataclass(frozen=True)
class Finding:
    """One measurement with its controls.

    `kind` is `attribute-inference`, `utility`, `fairness` …, with `-null` appended for a
    permuted-label control and `-reference` for a reference. `target` is the attribute or the task's
    label column. `attacker` is the family, or `strongest` for the one chosen on the attacker's own
    part. `seed` is None for a mean over seeds; the single values are in `parameters["by_seed"]`.
    """

    kind: str
    target: str
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    majority: float | None = None
    ceiling: float | None = None
    n: int | None = None
    attacker: str | None = None
    seed: int | None = None
    degenerate: bool = False
    subgroup: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    recipe_hash: str | None = None


@dataclass(frozen=True, repr=False)
class Findings:
    """The result of a run: rows, provenance, recipe and artefacts.

    >>> Findings((Finding("utility", "stars", "accuracy", 0.8),))
    <Findings: 1 row; utility of 'stars'>
    """

    rows: tuple[Finding, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    artefacts: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        """What was measured, in a line."""
        kinds: dict[str, dict[str, None]] = {}
        for row in self.rows:
            # Nulls and references stand beside what they belong to.
            if not row.kind.endswith(("-null", "-reference")):
                kinds.setdefault(row.kind, {})[repr(row.target)] = None
        parts = [f"{kind} of {', '.join(targets)}" for kind, targets in kinds.items()]
        rows = f"{len(self.rows)} row{'' if len(self.rows) == 1 else 's'}"
        return f"<Findings: {'; '.join([rows, *parts])}>"

    def __str__(self) -> str:
        """A short table, for `print`."""
        import capelet

        # By the package's door: tables are drawn in a room above this one.
        return str(capelet.render_table(self))

    def _repr_html_(self) -> str:
        """Verdict cards, for a notebook."""
        import capelet

        return str(capelet.render_cards(self))

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame, a column for each field of a `Finding`."""
        try:
            import pandas
        except ImportError:
            raise MissingExtra("a data frame of findings", "frames") from None
        names = [item.name for item in fields(Finding)]
        columns = {name: [getattr(row, name) for row in self.rows] for name in names}
        return pandas.DataFrame(columns, columns=names)

    def select(self, **fields_equal: Any) -> list[Finding]:
        """The rows whose fields equal all that is asked for.

        >>> rows = Findings((Finding("utility", "stars", "accuracy", 0.8),))
        >>> [row.value for row in rows.select(kind="utility", metric="accuracy")]
        [0.8]
        """
        return [
            row
            for row in self.rows
            if all(getattr(row, key) == want for key, want in fields_equal.items())
        ]

    def value(self, **fields_equal: Any) -> float:
        """The value of the one row that matches; a `KeyError` when there is none or several."""
        rows = self.select(**fields_equal)
        if len(rows) != 1:
            raise KeyError(f"{len(rows)} findings match {fields_equal}; exactly one was asked for")
        return rows[0].value

    def to_json(self) -> str:
        document = {
            "schema": SCHEMA,
            "provenance": dict(self.provenance),
            "recipe": dict(self.recipe),
            "artefacts": sorted(self.artefacts),
            "findings": [asdict(row) for row in self.rows],
        }
        return json.dumps(_finite(document), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, folder: Path | str) -> Path:
        """Write `findings.json` and `artefacts/`; the findings appear last, when all is there."""
        target = writable_folder(folder)
        stale = _listed_artefacts(target) - set(self.artefacts)
        artefacts = inner_folder(target, ARTEFACTS)
        for name, content in self.artefacts.items():
            text = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False)
            # What shows people's texts is for its owner only.
            shows = isinstance(content, Mapping) and content.get("redacted") is False
            write_whole(artefacts / f"{name}.json", text + "\n", mode=0o600 if shows else 0o644)
        # A folder may be written twice. Only what the run before lists goes: others may keep files
        # of their own here. While its list is still there: a kill in between leaves nothing behind.
        for name in stale:
            (artefacts / f"{name}.json").unlink(missing_ok=True)
        write_whole(target / FILE, self.to_json())
        return target

    @classmethod
    def load(cls, folder: Path | str) -> Findings:
        """Read what `save` wrote; an `OutputError` names what is missing or does not hold."""
        source = Path(folder)
        path = source / FILE if source.is_dir() else source
        try:
            document = parse_json(path.read_bytes())
            check_document(document)
            names, beside = document["artefacts"], path.parent / ARTEFACTS
            artefacts = {n: parse_json((beside / f"{n}.json").read_bytes()) for n in names}
        except FileNotFoundError:
            raise OutputError(
                f"no findings.json in {str(source)!r}, or an artefact is missing beside it; give a "
                "folder that `capelet audit` wrote"
            ) from None
        except OtherSchemaError as error:
            raise OutputError(
                f"{str(path)!r} has findings schema {error.schema}, this version reads {SCHEMA}; "
                "use the version of capelet that wrote it, or run the audit again"
            ) from None
        # What is no JSON has an error whose message quotes it.
        except (json.JSONDecodeError, UnicodeDecodeError, OSError):
            raise _unreadable(path, "it is no whole JSON") from None
        except ValueError as error:
            raise _unreadable(path, str(error)) from None
        rows = tuple(map(_finding, document["findings"]))
        return cls(rows, document["provenance"], document["recipe"], artefacts)


def _finding(row: Mapping[str, Any]) -> Finding:
    # A later version may add fields: they are passed over, the rest can still be read.
    names = {item.name for item in fields(Finding)}
    content = {key: value for key, value in row.items() if key in names}
    # JSON has no NaN, which `save` writes as null.
    value = math.nan if content["value"] is None else content["value"]
    return Finding(**{**content, "value": value})


def _listed_artefacts(folder: Path) -> set[str]:
    """What the findings that lie in a folder say is theirs; nothing where none can be read."""
    try:
        document = parse_json((folder / FILE).read_bytes())
        check_document(document)
    except (OSError, ValueError):
        return set()
    return set(document["artefacts"])


def _unreadable(path: Path, reason: str) -> OutputError:
    return OutputError(
        f"{str(path)!r} is not a findings file as Capelet writes it ({reason}); run the audit again"
    )


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    # numpy's scalars and arrays.
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
