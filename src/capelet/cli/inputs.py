"""What the commands read: the corpus, the encoder, and options that hold more than one value."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from capelet.cli.options import MOST_SEEDS
from capelet.cli.terminal import echo
from capelet.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
    from capelet.release import PrivateEncoder

YES = frozenset({"1", "1.0", "true", "yes", "member"})
NO = frozenset({"0", "0.0", "false", "no", "non-member"})


@dataclass(frozen=True)
class Columns:
    """Which columns of a file hold what; a named set knows its own."""

    text: str | None = None
    label: str | None = None
    private: Sequence[str] = ()
    author: str | None = None
    vectors: str | None = None
    official: str | None = None

    @property
    def any(self) -> bool:
        """Whether the user named a column at all."""
        # A set has no official parts of its own: the split names their column.
        return self != Columns(official=self.official)


@dataclass(frozen=True)
class Reading:
    """How a file is read, and which of its rows and classes are left out or merged."""

    where: str | None = None
    drop_empty: bool = False
    merge_rare: int | None = None
    encoding: str | None = None
    separator: str | None = None


def read_corpus(data: str, columns: Columns, reading: Reading | None = None) -> Corpus:
    """The corpus of a file or of a named set; a file of a set's name comes first."""
    from capelet.data.datasets import DATASETS, load
    from capelet.data.formats import Format
    from capelet.data.readers import read
    from capelet.data.tables import Sheet

    how = reading or Reading()
    if data in DATASETS and not Path(data).exists():
        if columns.any:
            raise DataError(
                f"the set {data!r} knows its own columns; give its file to choose others"
            )
        if how != Reading(how.where):
            raise DataError(
                f"the set {data!r} is whole and read as it is; leave out --drop-empty, "
                "--merge-rare, --encoding and --separator"
            )
        return load(data, where=how.where, official=columns.official)
    # Without a suffix it was meant as the name of a set.
    if not Path(data).suffix and not Path(data).exists():
        raise DataError(f"there is no file and no set {data!r}; {did_you_mean(data, DATASETS)}")
    sheet = Sheet.of(data, Format(how.encoding, how.separator))
    corpus = read(
        sheet,
        text=columns.text,
        label=columns.label,
        private=split_columns(columns.private, sheet.table.column_names),
        author=columns.author,
        official=columns.official,
        vectors=columns.vectors,
        where=how.where,
        drop_empty=how.drop_empty,
        merge_rare=how.merge_rare,
    )
    for note in corpus.notes:
        echo(f"capelet: {note}", file=sys.stderr)
    return corpus


def read_auxiliary(data: str, corpus: Corpus, columns: Columns, reading: Reading) -> Corpus:
    """Other data than the audited corpus, by columns of the same names; those it lacks are absent.

    Rows are not chosen by --where, which speaks of the audited file.
    """
    from capelet.data.datasets import DATASETS
    from capelet.data.formats import Format
    from capelet.data.tables import Sheet

    if data in DATASETS and not Path(data).exists():
        return read_corpus(data, Columns())
    how = Reading(None, reading.drop_empty, reading.merge_rare, reading.encoding, reading.separator)
    names = Sheet.of(data, Format(how.encoding, how.separator)).table.column_names
    # A named set knows its columns; its texts are in a column of that name.
    text = columns.text or ("text" if columns.vectors is None else None)
    private = tuple(name for name in corpus.private if name in names)
    author = columns.author if columns.author in names else None
    return read_corpus(data, Columns(text, None, private, author, columns.vectors), how)


def open_encoder(corpus: Corpus, recipe: Path | None, encoder: str, backend: str) -> PrivateEncoder:
    """The private encoder of a recipe, a folder or a name; ready vectors need no encoder."""
    from capelet.encoders import load
    from capelet.release import PrivateEncoder, is_private_encoder

    if recipe is not None:
        return PrivateEncoder.from_recipe(recipe)
    if corpus.vectors is None and is_private_encoder(encoder):
        return PrivateEncoder(encoder)
    return PrivateEncoder(load(encoder, backend)) if corpus.vectors is None else PrivateEncoder()


def split_columns(items: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """The columns that were named, once for each option; a list with commas if all are columns.

    >>> split_columns(["age, in years", "gender,country"], ["age, in years", "gender", "country"])
    ['age, in years', 'gender', 'country']
    """
    columns: list[str] = []
    for item in items or ():
        parts = split_names(item)
        # A name with a comma in it comes first; what is no column at all is refused by its name.
        is_list = item not in names and len(parts) > 1
        some = [part for part in parts if part in names]
        # Of a list with one slip the slip is complained of, not the whole list.
        columns += parts if is_list and some else [item if item in names else item.strip()]
    return list(dict.fromkeys(columns))


def split_names(names: str | None) -> list[str]:
    """The names between the commas."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def parse_bins(bins: list[str] | None) -> dict[str, list[float]]:
    """The edges of each column that is to be cut: `age=30,50`."""
    edges_by_column = {}
    for item in bins or []:
        # The last one: a name may have such a sign in it, too.
        name, _, edges = item.rpartition("=")
        try:
            edges_by_column[name.strip()] = [float(edge) for edge in edges.split(",")]
        except ValueError:
            raise DataError(f"--bins {item!r} is not understood; write age=30,50") from None
    return edges_by_column


def parse_weight(weight: str | None) -> float | dict[str, float] | None:
    """One λ for all attributes, or one for each of those that are named.

    >>> parse_weight("2"), parse_weight("gender=1,age=0.3")
    (2.0, {'gender': 1.0, 'age': 0.3})
    """
    if weight is None:
        return None
    try:
        if "=" not in weight:
            return float(weight)
        pairs = [item.rpartition("=") for item in split_names(weight)]
        return {name.strip(): float(value) for name, _, value in pairs}
    except ValueError:
        raise DataError(
            f"--adversary-weight {weight!r} is not understood; write 1, or gender=1,age=0.3"
        ) from None


def parse_seeds(seeds: str) -> int | list[int]:
    """A number alone is a count of splits; a comma makes a list of seeds.

    >>> parse_seeds("3"), parse_seeds("0,1,2"), parse_seeds("7,")
    (3, [0, 1, 2], [7])
    """
    try:
        if "," in seeds:
            return [int(seed) for seed in split_names(seeds)]
        count = int(seeds)
    except ValueError:
        raise DataError(
            f"--seeds {seeds!r} is not understood; write 3 for three splits, 0,1,2 for the seeds "
            "themselves, or 7, (with its comma) for seed 7 alone"
        ) from None
    if count > MOST_SEEDS:
        raise DataError(f"--seeds is {count}, and {MOST_SEEDS} splits are the most")
    return count


def member_flags(values: list[object], column: str) -> list[bool]:
    """The member column as yes and no; anything else is refused."""
    words = [str(value).strip().lower() for value in values]
    # A guess here would turn members into others, and every score with them.
    unclear = next((row for row, word in enumerate(words) if word not in YES | NO), None)
    if unclear is not None:
        raise DataError(
            f"row {unclear} of the column {column!r} is neither yes nor no; write yes/no, "
            "true/false or 1/0"
        )
    return [word in YES for word in words]
