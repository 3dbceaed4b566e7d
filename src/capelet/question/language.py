"""The records of a language model and of a dual encoder: what is trained, how long, and by what.

Here a default is the field's own: no preset and no search stands between, so that what nobody chose
is the same at every door. None is left where the default depends on something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from capelet.question.fields import MOST, Between, Count, Rounds, Seed, Units, check_fields

Layers = Annotated[int, Between(1, 128)]


@dataclass(frozen=True)
class LanguageNetwork:
    """The shape of a language model, and its words; in Python `vocabulary` may list them."""

    network: str = "lstm"
    """lstm or transformer."""
    vocabulary: Annotated[int | Sequence[str], Between(1, MOST)] = 10_000
    """How many words the model knows."""
    width: Units = 256
    """Size of word vectors and states."""
    layers: Layers = 2
    """Layers of the network."""
    length: Rounds = 20
    """Words of a text that are read."""
    words: str | None = None
    """Where the words come from: public:glove, a public file with one per line, or private
    (read off the texts through noise that ε pays for); else read off the texts."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class LanguageSchedule:
    """How long it is trained, in which batches, and from which seed.

    With `perplexity` the weights nearest to it on validation rows are kept, for comparisons at one
    perplexity. To choose them is covered by no ε, so DP-SGD takes it with seeded noise alone.
    """

    epochs: Rounds = 10
    """Times that all texts are seen."""
    batch: Count = 100
    """Texts per step; authors, where they are the unit."""
    rate: float = 1e-3
    """Learning rate of Adam."""
    batching: str = "grouped"
    """uniform, author or grouped; dpsgd samples by itself."""
    seed: Seed = 0
    """Of the split, the weights and the batches."""
    device: str = "auto"
    """auto, cpu or cuda."""
    perplexity: float | None = None
    """Keep the weights whose validation perplexity is nearest to this."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Mitigation:
    """Which training it is, and what each method reads of its own.

    DP-SGD needs `epsilon` or `noise_multiplier`; `delta` is n^−1.1 where it is not given, below the
    1/n at which publishing one text whole would already count as private. With the `unit` `author`
    at most `texts_per_author` texts of each author train, and count as one. `seeded_noise` can be
    repeated, and guarantees nothing.
    """

    method: str = "none"
    """{language methods:or}."""
    strength: float = 4.0
    """λ of adversarial and triplet."""
    position: str = "random"
    """The state that is kept from authors: random (prefix) or last."""
    epsilon: float | None = None
    """The ε that dpsgd must keep."""
    delta: float | None = None
    """Its δ; at most n^−1.1, the default."""
    noise_multiplier: float | None = None
    """The noise of dpsgd instead of its ε."""
    clip: float = 1.0
    """The longest gradient of one text, or author."""
    unit: str = "record"
    """What ε covers: record (one text) or author (all of them)."""
    seeded_noise: bool = False
    """Repeatable noise, for studies: no guarantee."""
    texts_per_author: Count | None = None
    """Texts of an author that train, at most, where the unit is author; 16."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class CanaryCounts:
    """How often made-up secrets are inserted, and for how many authors; none by default."""

    canaries: Sequence[int] = ()
    """Insert made-up secrets; the number of insertions per secret: 1,5,20,50."""
    canary_authors: Count | None = None
    """Authors per number of repetitions; all of them."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class DualNetwork:
    """The shape of a dual encoder, and its words."""

    network: str = "transformer"
    """transformer or lstm."""
    vocabulary: Count = 20_000
    """How many words the encoder knows."""
    width: Units = 384
    """Size of word vectors and states."""
    layers: Layers = 3
    """Layers of the network."""
    dimension: Units = 384
    """Size of the released vectors."""
    length: Rounds = 64
    """Words of a text that are read."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class DualTraining:
    """What a dual encoder is trained against, for how long, and from which seed."""

    lambda_words: float = 0.0
    """λ against readers of words."""
    lambda_authors: float = 0.0
    """λ against readers of authors."""
    negatives: str | None = None
    """any, or author: told apart from the same author's other posts; by default author where
    authors are hidden."""
    epochs: Rounds = 5
    """Times that all pairs are seen."""
    batch: Count = 1024
    """Pairs per step."""
    rate: float = 5e-4
    """Learning rate."""
    seed: Seed = 0
    """Of the weights and the batches."""

    def __post_init__(self) -> None:
        check_fields(self)
