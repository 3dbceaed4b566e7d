"""The records of a question about a corpus: its columns, its encoder, the protocol, the attacks.

None means "not chosen"; whoever decides puts the default there, so that "chosen" is never guessed
from a value. The docstring below a field is its help at every door; names in braces stand for the
members of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from capelet.question.fields import MOST_ROUNDS, Between, Count, Form, Rounds, check_fields

Names = Annotated[Sequence[str], Form.NAMES]
ColumnNames = Annotated[Sequence[str], Form.COLUMNS]


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what, and which of its rows are read."""

    text: str | None = None
    """Column of the texts."""
    label: str | None = None
    """Column of the task label."""
    private: ColumnNames = ()
    """Columns of private attributes: repeated, or comma-separated."""
    author: str | None = None
    """Column of the author."""
    vectors: str | None = None
    """Column of ready vectors."""
    where: str | None = None
    """Keep rows, as in "language == 'en'" or "'How old?' >= 30"."""
    drop_empty: bool = False
    """Leave out rows without a text, vector or author."""
    merge_rare: Count | None = None
    """Merge classes on fewer rows than this; leave out what is still too rare."""
    encoding: str | None = None
    """Of a text file: utf-8, utf-16, cp1252, latin-1 …"""
    separator: str | None = None
    """Of a CSV file: comma, semicolon, tab, pipe or a sign."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Source:
    """What makes the vectors, where they are not ready."""

    encoder: str | None = None
    """{encoders}, a folder or a Hugging Face id; by default minilm."""
    backend: str | None = None
    """Of a transformer: auto (default), torch, onnx or int8."""
    recipe: Path | None = None
    """A TOML recipe, or the folder of a private encoder: take what it releases."""
    cache: bool = True
    """Keep the encoder's vectors on this machine, or not."""


@dataclass(frozen=True)
class Protocol:
    """How it is measured: the splits, the attackers, and what is computed."""

    split: str | None = None
    """auto (default), {splits:or}; or column:NAME, a column of train, dev and test."""
    seeds: Annotated[int | Sequence[int] | None, Between(1, MOST_ROUNDS)] = None
    """How many splits to average over; or which, by seed: 0,1,2, or 7, for 7 alone."""
    attackers: Names = ()
    """{attackers}; all by default. Sized: mlp:depth=3,width=200."""
    metrics: Names = ()
    """More metrics: empirical_privacy, empirical_privacy_f1, recall_present, recall_absent."""
    derive: Names = ()
    """Read off the texts: names, email, phone, number, words:FILE or a|b; topics as the task."""
    bins: Mapping[str, Sequence[float]] | None = None
    """Cut the numbers of a column, as in age=30,50. May be repeated."""
    seeded_noise: bool = False
    """Draw the noise of each split from its seed, so that a study can be repeated: no guarantee."""
    threads: Rounds | None = None
    """How many splits to attack in parallel; as many as there are cores."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, eq=False)
class Attacks:
    """What is tried on a release beside its attributes, and with which knowledge."""

    attacks: Names = ("attributes",)
    """Kinds of attack, or all that the data allow."""
    members: Sequence[bool] | None = None
    """Of each text, whether the model was trained on it."""
    auxiliary: Any = None
    """Another corpus that teaches one more attacker."""
    show_texts: bool = False
    """Put texts and words into the examples of inversion."""
    compare_map: Mapping[str, Any] | None = None
    """Private encoders by name, whose releases are plotted on the same t-SNE map."""
