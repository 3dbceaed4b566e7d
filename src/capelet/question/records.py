"""The records of a question about a corpus: its columns, the protocol, the attacks.

None means "not chosen"; whoever decides puts the default there, so that "chosen" is never guessed
from a value. The docstring below a field is its help at every door.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Columns:
    """Which columns of a table hold what, and which of its rows are read."""

    text: str | None = None
    """Column of the texts."""
    label: str | None = None
    """Column of the task label."""
    private: Sequence[str] = ()
    """Columns of private attributes."""
    author: str | None = None
    """Column of the author."""
    vectors: str | None = None
    """Column of ready vectors."""
    where: str | None = None
    """Keep rows, as in "language == 'en'" or "'How old?' >= 30"."""
    drop_empty: bool = False
    """Leave out rows without a text, vector or author."""
    merge_rare: int | None = None
    """Merge classes on fewer rows than this; leave out what is still too rare."""
    encoding: str | None = None
    """Of a text file: utf-8, utf-16, cp1252, latin-1 …"""
    separator: str | None = None
    """Of a CSV file: comma, semicolon, tab, pipe or a sign."""


@dataclass(frozen=True)
class Protocol:
    """How it is measured: the splits, the attackers, and what is computed."""

    split: str | None = None
    """auto, or a kind of split; or column:NAME, a column of train, dev and test."""
    seeds: int | Sequence[int] | None = None
    """How many splits to average over; or which, by seed."""
    attackers: Sequence[Any] = ()
    """Families of attackers; all by default. Sized: mlp:depth=3,width=200."""
    metrics: Sequence[str] = ()
    """Metrics beside the usual ones."""
    derive: Sequence[str] = ()
    """Attributes that are read off the texts: names, email, phone, number, topics …"""
    bins: Mapping[str, Sequence[float]] | None = None
    """Edges at which the numbers of a column are cut, as in age=30,50."""
    seeded_noise: bool = False
    """Measure releases whose noise is drawn from each split's seed: a study, no guarantee."""
    threads: int | None = None
    """How many splits to attack in parallel; as many as there are cores."""


@dataclass(frozen=True, eq=False)
class Attacks:
    """What is tried on a release beside its attributes, and with which knowledge."""

    attacks: Sequence[str] = ("attributes",)
    """Kinds of attack, or all that the data allow."""
    members: Sequence[bool] | None = None
    """Of each text, whether the model was trained on it."""
    auxiliary: Any = None
    """Another corpus that teaches one more attacker."""
    show_texts: bool = False
    """Put texts and words into the examples of inversion."""
    compare_map: Mapping[str, Any] | None = None
    """Private encoders by name, whose releases are plotted on the same t-SNE map."""
