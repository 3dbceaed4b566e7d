"""What attackers read from the raw and from the private vector of one text, beside chance.

The operator's page shows it for a text that is typed there. The attackers learn when the gateway
starts, on a corpus with private attributes, by the road of every audit: one on raw vectors, one on
released vectors of the same texts. They are logistic regressions; a stronger attacker may read
more, so what they do not read is no proof, and the ceiling of ε stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from capelet.data.corpus import Corpus
from capelet.data.splits import group_rows
from capelet.encoders.cache import RememberingEncoder
from capelet.errors import CapeletError
from capelet.evaluation.decision import plan_attributes, rows_that_trained
from capelet.evaluation.measure import FittedAttacker, Released, fitted_attackers
from capelet.evaluation.plan import Plan
from capelet.evaluation.utility import neighbours
from capelet.findings import Finding
from capelet.interfaces import Vectors
from capelet.question import Protocol
from capelet.release import PrivateEncoder

# As many as take a few seconds to encode; more hardly help a logistic regression.
_ROWS = 1200
_NEIGHBOURS = 10
_PROTOCOL = Protocol(seeds=(0,), attackers=("logistic",))


@dataclass(frozen=True)
class Guess:
    """A class, how sure the attacker is of it, and how often such guesses are right elsewhere."""

    value: str
    probability: float
    accuracy: float

    @classmethod
    def of(cls, attacker: FittedAttacker, vector: Vectors) -> Guess:
        return cls(*attacker.read(vector), attacker.accuracy)


@dataclass(frozen=True)
class AttributeGuess:
    """One attribute, guessed from the raw vector and from the private one; chance for both."""

    attribute: str
    chance: float
    raw: Guess
    private: Guess


def describe_search(recall: Finding) -> str:
    """How many of the ten nearest texts a vector store still finds, and whether that is of use."""
    chance = recall.chance or 0.0
    if recall.value >= 0.5:
        use = "it serves search"
    elif recall.value >= 3 * chance:
        use = "it serves search poorly: a task of few classes may still be served"
    else:
        use = "it does not serve search: neighbours are hardly better than chance"
    return (
        f"of the {_NEIGHBOURS} nearest of {recall.n} texts, the released vectors still find "
        f"{100 * recall.value:.0f} % (chance: {100 * chance:.1f} %): {use}"
    )


class Demonstration:
    """Attackers on the raw and the released vectors of a corpus with private attributes."""

    def __init__(self, private: PrivateEncoder, corpus: Corpus) -> None:
        if corpus.texts is None or not corpus.private:
            raise CapeletError("the page's attackers need texts and at least one private attribute")
        self._private, self._plan = private, _plan(private, corpus)
        self._attackers: Sequence[tuple[FittedAttacker, FittedAttacker]] = ()
        self.search: str | None = None

    @property
    def is_ready(self) -> bool:
        return bool(self._attackers)

    def learn(self) -> None:
        """Encode some texts, release them, fit both attackers; seconds, once."""
        plan, texts = self._plan, self._plan.corpus.texts
        assert texts is not None
        # For this once, so that no text is encoded twice; nothing of it stays.
        private = self._private.with_encoder(RememberingEncoder)
        raw = Released.of([private.unprotected()], texts.tolist())
        released = Released.of([private], texts.tolist())
        recall = neighbours(plan, raw.first.vectors, released.vectors, None)
        self.search = describe_search(recall)
        pairs = zip(fitted_attackers(plan, raw), fitted_attackers(plan, released), strict=True)
        # Last: whoever sees it may read.
        self._attackers = tuple(pairs)

    def read(self, text: str, release: Vectors) -> list[AttributeGuess]:
        """What both attackers say of one text; its raw vector is made here and forgotten."""
        (raw,) = self._private.unprotected().release([text]).vectors
        return [
            AttributeGuess(
                on_raw.secret.name,
                1 / len(on_raw.secret.classes),
                Guess.of(on_raw, raw),
                Guess.of(on_release, release),
            )
            for on_raw, on_release in self._attackers
        ]


def _plan(private: PrivateEncoder, corpus: Corpus) -> Plan:
    """The split of some texts, writer by writer; nobody defends, and a fifth are victims."""
    groups = group_rows(corpus)
    rank = np.random.default_rng(0).permutation(int(groups.max()) + 1)[groups]
    rows = np.sort(np.argsort(rank, kind="stable")[:_ROWS])
    some = replace(corpus.take(rows), label=None, label_name=None)
    assert some.texts is not None
    trained = rows_that_trained(private, some.texts.tolist())
    plan = plan_attributes(_PROTOCOL, some, trained).without_defender()
    plan.check_victims()
    if len(plan.splits[0].victims) <= _NEIGHBOURS:
        raise CapeletError("the page's attackers need more writers: too few are left to be scored")
    return plan
