"""What all adapters of frameworks share: texts in, released vectors out, as lists of floats.

A document is a release, and **a query is a release, too**: both go through the same steps and are
charged alike. An adapter charges nobody unless it is given a store (`store="people.db"`); it says
so once in the log. With a store, every call must say whom its texts are about:

    with about("ann"):
        collection.add(...)          # whatever is embedded in here is charged to Ann

or `subject="ann"` where an adapter serves one person only. A call that says neither is refused:
nothing is drawn. Frameworks cut and sort texts before they embed them, so `about` names one person
for a whole block; a list would be laid against the wrong texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from capelet.errors import CapeletError
from capelet.ledger.budgets import Budget
from capelet.privacy.guarantees import Guarantee
from capelet.release.charging import Repeats
from capelet.release.metered import ChargingPolicy, MeteredEncoder, Source, Store, Subjects

# A context variable: it reaches asynchronous tasks and the threads that `asyncio.to_thread` and
# LangChain start. In a thread that knows nothing of it there is no subject, and nothing is drawn.
_SUBJECT: ContextVar[str | None] = ContextVar("capelet_subject", default=None)


@contextmanager
def about(subject: str) -> Iterator[None]:
    """Charge all that adapters embed in this block to one person."""
    if not isinstance(subject, str) or not subject.strip():
        raise CapeletError("about() needs the name of one person: a string that is not empty")
    token = _SUBJECT.set(subject)
    try:
        yield
    finally:
        _SUBJECT.reset(token)


class Embedder:
    """The core of every adapter: a metered encoder, and whom a call is about.

    An adapter is a member of this class: what all of them take (`store`, `budget`, `repeats` and
    `subject`) is said here, and it adds what its framework asks for.
    """

    def __init__(
        self,
        source: Source,
        *,
        store: Store | None = None,
        budget: float | Budget | None = None,
        repeats: Repeats = "same",
        subject: str | None = None,
    ) -> None:
        if store is None and subject is not None:
            raise CapeletError("a subject is charged in a store: give store= too")
        self.source, self.store, self.budget, self.repeats = source, store, budget, repeats
        self.subject = subject
        self.encoder = MeteredEncoder(source, ChargingPolicy.of(store, budget, repeats))

    @property
    def guarantee(self) -> Guarantee:
        return self.encoder.guarantee

    @property
    def dimension(self) -> int:
        return self.encoder.dimension

    def embed(self, texts: Sequence[str], subjects: Subjects = None) -> list[list[float]]:
        """The released vectors of the texts; about `subjects`, the block's person, or the own."""
        if self.encoder.meter is not None and subjects is None:
            subjects = _SUBJECT.get() or self.subject
        vectors: list[list[float]] = self.encoder.release(texts, subjects).vectors.tolist()
        return vectors

    def embed_one(self, text: str, subject: str | None = None) -> list[float]:
        """The released vector of one text; of a query, too."""
        return self.embed([text], subject)[0]

    def to_json(self) -> dict[str, Any]:
        """The arguments for a framework that writes its components down; never who is charged."""
        if not isinstance(self.source, str | Path):
            raise CapeletError(
                "a private encoder in memory cannot be written down; save it, and give its folder"
            )
        if not isinstance(self.store, str | Path | None):
            raise CapeletError("an open store cannot be written down; give its path instead")
        if isinstance(self.budget, Budget):
            raise CapeletError("a budget with a δ cannot be written down; give its ε instead")
        store = None if self.store is None else str(self.store)
        settings = {"store": store, "budget": self.budget, "repeats": self.repeats}
        return {"source": str(self.source), **settings}
