"""The records of a training: what a method is asked for, and the network that learns it.

None means "not chosen": a paper's preset, then the method's own value, then the default of
`defences.Settings` stands in its place, and a search varies what nobody chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from capelet.question.fields import Count, Rounds, Units, check_fields


@dataclass(frozen=True)
class Training:
    """What is asked of a method of defence, and what its training promises."""

    epsilon: float | None = None
    """The ε of the noise."""
    adversary_weight: float | Mapping[str, float] | None = None
    """How hard the secrets are fought: a number, or one for each, as in gender=1,age=0.3."""
    adversary_loss: str | None = None
    """What the map has from its adversary: reversal (default) or bounded."""
    keep: str | None = None
    """What to keep: task, neighbours or both; the task where there is a label."""
    word_dropout: float | None = None
    """The share of words that dpnr drops; by default 0.5."""
    table: str | None = None
    """Word vectors for mdp: an encoder's name, or a file in word2vec's text format."""
    table_size: Count | None = None
    """Take only so many of the table's words, the first ones."""
    mechanism: str | None = None
    """The noise by name, where a method has several."""
    tune_layers: int | None = None
    """How many last layers of the encoder to train along."""
    train_epsilon: float | None = None
    """Train with differential privacy: the ε of replacing one training text."""
    train_delta: float | None = None
    """Its δ; by default n^−1.1, and at most 1e-5."""
    unit: str | None = None
    """What train_epsilon covers: text (default) or author."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Network:
    """The dense layers and heads that a method trains, and for how long."""

    preset: str | None = None
    """A paper's settings, {presets:or}; options that are given take precedence."""
    width: Units | None = None
    """Units of the dense layers; by default 64."""
    head_units: Units | None = None
    """Hidden units of the heads."""
    dropout: float | None = None
    """Share of them that a step leaves out."""
    batch: Count | None = None
    """Texts per step."""
    rate: float | None = None
    """Learning rate of Adam."""
    epochs: Rounds | None = None
    """Times that all texts are seen, at most."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Search:
    """What a search for settings must reach, and what is trained although it cannot serve."""

    max_leakage: float | None = None
    """Search settings whose attackers gain at most this over chance."""
    min_utility: float | None = None
    """Search settings that are worth at least this."""
    trials: Rounds | None = None
    """How many settings to try; by default 20."""
    allow_useless_epsilon: bool = False
    """Train even if this ε makes the task impossible."""

    def __post_init__(self) -> None:
        check_fields(self)
