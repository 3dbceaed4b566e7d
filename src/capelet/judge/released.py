"""What a released file tells beside its vectors: one check for each thing that could.

    capelet verify out.parquet

The vectors carry a guarantee; the file around them carries none. The attacker who is thought of
here holds the file, our code, and guesses of the private texts: whatever he could recompute from a
guess (a hash of what was learnt), and whatever follows the texts (which vectors are equal, which
rows are missing, a column that was left in), confirms the guess.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet

from capelet.encoders.own import OWN
from capelet.errors import OutputError, name_field
from capelet.interfaces import Vectors
from capelet.privacy.guarantees import Guarantee
from capelet.release.jobs import ROW, VECTOR
from capelet.release.recipe import METADATA, matrix_of

# Keys that a Parquet file may carry: ours, and what Arrow writes of the schema by itself.
PLAIN_KEYS = (METADATA, b"ARROW:schema")
_DIGEST_KEY = re.compile(r"sha|md5|hash|digest|checksum|fingerprint", re.IGNORECASE)
_DIGEST = re.compile(r"[0-9a-fA-F]{32,}")
# What is named by a hash and is public: the weights of a public encoder, a public table of words.
_PUBLIC_HASH = "fingerprint"


@dataclass(frozen=True)
class Disclosure:
    """One thing that is told beside the vectors; a fault unless it is declared."""

    check: str
    sentence: str
    is_fault: bool = True


@dataclass(frozen=True)
class Inspection:
    """What was inspected, which checks were made, and what they found."""

    subject: str
    checks: tuple[str, ...]
    disclosures: tuple[Disclosure, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is told that was not declared."""
        return not any(item.is_fault for item in self.disclosures)

    @property
    def headline(self) -> str:
        """The result without what was found, which `disclosures` lists."""
        if not self.passed:
            return f"{self.subject} tells more than its guarantee covers"
        return (
            f"{self.subject} tells nothing beside its vectors that {len(self.checks)} checks "
            f"({', '.join(self.checks)}) would show; this is a test, not a proof"
        )

    @property
    def sentence(self) -> str:
        """The result in words, for a reader who sees nothing else."""
        notes = [item.sentence for item in self.disclosures if not item.is_fault]
        faults = [item.sentence for item in self.disclosures if item.is_fault]
        if faults:
            return f"{self.headline}: {'; '.join(faults)}."
        declared_notes = f" Declared: {'; '.join(notes)}." if notes else ""
        return f"{self.headline}.{declared_notes}"

    def describe(self) -> dict[str, Any]:
        """The result as plain values, for JSON."""
        return {
            "passed": self.passed,
            "sentence": self.sentence,
            "subject": self.subject,
            "checks": list(self.checks),
            "disclosures": [asdict(item) for item in self.disclosures],
        }


class ReleasedFile:
    """A Parquet file as an attacker reads it: columns, vectors, metadata, and its footer."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        advice = f"give a file that `capelet encode` wrote, or a recipe as {name_field('recipe')}"
        if not self.path.is_file():
            raise OutputError(f"{str(path)!r} is not there, or is no file; {advice}")
        try:
            self.footer = pa.parquet.read_metadata(self.path)
            self.table = pa.parquet.read_table(self.path)
        except (OSError, pa.ArrowException) as error:
            raise OutputError(
                f"{str(path)!r} cannot be read as a Parquet file ({type(error).__name__}); {advice}"
            ) from None
        if VECTOR not in self.table.column_names:
            raise OutputError(
                f"{str(path)!r} has no column {VECTOR!r} but {', '.join(self.table.column_names)}; "
                f"{advice}"
            )

    @cached_property
    def metadata(self) -> dict[bytes, bytes]:
        return dict(self.table.schema.metadata or {})

    @cached_property
    def description(self) -> Mapping[str, Any]:
        """Guarantee, recipe and whatever else the file says of itself; empty where it is cut."""
        try:
            content = json.loads(self.metadata[METADATA])
        except (KeyError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    @cached_property
    def guarantee(self) -> Guarantee | None:
        try:
            return Guarantee.from_json(self.description["guarantee"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    @property
    def steps(self) -> list[Mapping[str, Any]]:
        recipe = self.description.get("recipe")
        steps = recipe.get("steps") if isinstance(recipe, dict) else None
        return [step for step in steps or [] if isinstance(step, dict)]

    @property
    def declares_repeats(self) -> bool:
        """Whether it is declared public which of a person's texts are equal."""
        return self.description.get("repeats") == "same"

    @cached_property
    def subject(self) -> str | None:
        """The column of the subjects: the only one beside the row's number and its vector."""
        others = [name for name in self.table.column_names if name not in (ROW, VECTOR)]
        is_text = [pa.types.is_string(self.table.schema.field(name).type) for name in others]
        return others[0] if others and is_text[0] else None

    @cached_property
    def vectors(self) -> Vectors:
        return np.ascontiguousarray(matrix_of(self.table[VECTOR]))

    @cached_property
    def vector_names(self) -> npt.NDArray[np.int64]:
        """A number for each vector, equal where vectors are equal bit by bit."""
        if not self.table.num_rows:
            return np.zeros(0, dtype=np.int64)
        rows = self.vectors
        keys = rows.view(f"V{rows.shape[1] * rows.itemsize}").ravel()
        return np.asarray(np.unique(keys, return_inverse=True)[1]).reshape(-1)


# ---- the checks ----------------------------------------------------------------------------------


def _check_guarantee(file: ReleasedFile) -> Iterator[str]:
    promise = file.guarantee
    if promise is None:
        yield (
            "its guarantee is missing or cut: nothing says what its vectors promise, so release it "
            "again with `capelet encode` and pass that file on unchanged"
        )
        return
    if promise.notion == "none" or promise.status in ("none", "broken"):
        yield f"its vectors promise nothing ({promise.sentence()})"
    elif not math.isfinite(promise.epsilon):
        yield "its guarantee states no finite ε"
    has_learnt = any(step.get("step") == "map" or step.get("name") == OWN for step in file.steps)
    if has_learnt and promise.training is None:
        yield "a step was learnt from texts, and the guarantee does not say what those are promised"


def _check_keys(file: ReleasedFile) -> Iterator[str]:
    for key in _foreign_keys(file):
        yield f"its metadata has the key {key!r}, which is not the release's"
    for name in file.table.column_names:
        # Arrow keeps metadata of single columns too.
        extra = (file.table.schema.field(name).metadata or {}).keys() - {b"PARQUET:field_id"}
        if extra:
            yield f"the column {name!r} has metadata of its own"


def _check_digests(file: ReleasedFile) -> Iterator[str]:
    """A hash of what was learnt from private texts confirms a guess of them."""
    for step in file.steps:
        kind, is_own = step.get("step"), step.get("name") == OWN
        is_public = kind != "map" and not is_own
        for key, value in step.items():
            if not _is_digest(key, value) or (key == _PUBLIC_HASH and is_public):
                continue
            yield f"the recipe's step {kind!r} holds a digest ({key!r}) that can be recomputed"
    rest = {key: value for key, value in file.description.items() if key != "recipe"}
    for key, value in _leaves(rest):
        if _is_digest(key, value):
            yield f"the metadata hold a digest ({key!r}) that can be recomputed"
    for key, content in _foreign_keys(file).items():
        if _DIGEST.search(content):
            yield f"the metadata hold a digest (under {key!r})"


def _foreign_keys(file: ReleasedFile) -> dict[str, str]:
    """Metadata that a release does not write, as text."""
    items = file.metadata.items()
    return {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in items
        if key not in PLAIN_KEYS
    }


def _is_digest(key: str, value: Any) -> bool:
    # A random id is no digest: nobody can compute it from anything.
    if key == "id" or not isinstance(value, str):
        return False
    return bool(_DIGEST_KEY.search(key) or _DIGEST.fullmatch(value))


def _leaves(content: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _leaves(value, str(name))
    elif isinstance(content, list):
        for value in content:
            yield from _leaves(value, key)
    else:
        yield key, content


def _check_columns(file: ReleasedFile) -> Iterator[str]:
    usual = {ROW, VECTOR, file.subject}
    for name in file.table.column_names:
        if name not in usual:
            yield f"the column {name!r} is neither the row's number, its subject nor its vector"


def _check_rows(file: ReleasedFile) -> Iterator[str]:
    """Row numbers that jump tell which rows were left out; another order tells by what."""
    if ROW not in file.table.column_names:
        return
    rows = np.asarray(file.table[ROW].to_numpy())
    if np.array_equal(rows, np.arange(len(rows))):
        return
    if np.array_equal(np.sort(rows), np.arange(len(rows))):
        yield "its rows are not in the order of their numbers"
    else:
        yield "its row numbers have gaps or repeats, which tell what was left out or came twice"


def _check_repeats(file: ReleasedFile) -> Iterator[str]:
    """Equal vectors of one person show equal texts; fresh noise on a fine grid never repeats."""
    names = file.vector_names
    if file.subject is None:
        distinct = len(np.unique(names))
        # Where vectors are a few symbols, most of them repeat by themselves.
        if len(names) // 2 < distinct < len(names):
            yield f"{len(names) - distinct:,} vectors repeat another one exactly"
        return
    subjects = file.table[file.subject].to_pylist()
    within, of_within = _equal_pairs(names, subjects)
    everywhere, of_everywhere = _equal_pairs(names, [None] * len(subjects))
    between, of_between = everywhere - within, of_everywhere - of_within
    # Symbols repeat between people as well; only what is more common within a person tells.
    expected = of_within * (between / of_between if of_between else 0.0)
    if within > expected + 6 * math.sqrt(expected) + (6 if between else 0):
        count = "a pair" if within == 1 else f"{within:,} pairs"
        yield f"{count} of vectors of one subject, equal bit by bit, shows that the texts are equal"


def _equal_pairs(names: npt.NDArray[np.int64], groups: Sequence[Any]) -> tuple[int, int]:
    """Pairs of equal vectors within a group, and all pairs within a group."""
    equal = Counter(zip(groups, names.tolist(), strict=True))
    sizes = Counter(groups)
    return (
        sum(count * (count - 1) // 2 for count in equal.values()),
        sum(count * (count - 1) // 2 for count in sizes.values()),
    )


FILE_CHECKS: dict[str, Callable[[ReleasedFile], Iterator[str]]] = {
    "guarantee": _check_guarantee,
    "metadata keys": _check_keys,
    "digests": _check_digests,
    "columns": _check_columns,
    "row numbers": _check_rows,
    "repeats": _check_repeats,
}


def file_disclosures(file: ReleasedFile) -> Iterator[Disclosure]:
    """What the checks find in a file."""
    for name, check in FILE_CHECKS.items():
        for sentence in check(file):
            # Only equality can be declared: everything else that is told is a fault.
            yield Disclosure(name, sentence, not (name == "repeats" and file.declares_repeats))


def inspect_file(path: Path | str) -> Inspection:
    """What a released file tells beside its vectors; checks that find nothing are no proof."""
    file = ReleasedFile(path)
    promise = file.guarantee
    stated = f" ({promise.sentence()})" if promise is not None else ""
    subject = f"{file.path.name}{stated}"
    return Inspection(subject, tuple(FILE_CHECKS), tuple(file_disclosures(file)))
