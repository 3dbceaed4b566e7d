"""The gateway's decisions: who asks, about whom, what is stored already, and what that costs.

Two scopes, on purpose different. *Memory* is by API key, person, recipe and text: a caller gets
back what the same key was given before, so a retry costs nothing, and no caller learns from
`charged: 0` that somebody else has sent a text. *Charges* are by person alone: whoever asks,
through however many keys, spends one budget.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from capelet.encoders.own import unwrap
from capelet.errors import CapeletError, name_field
from capelet.ledger.budgets import BudgetError, Limits, needs_of
from capelet.ledger.keys import ApiKey
from capelet.ledger.people import normalise_person
from capelet.ledger.settlement import Order, Request, undrawn
from capelet.ledger.store import Ledger
from capelet.release import PrivateEncoder
from capelet.release.charging import Account
from capelet.release.recipe import recipe_hash
from capelet.service.batcher import Job
from capelet.service.callers import Callers
from capelet.service.errors import (
    StoreErrors,
    bad_input,
    not_allowed,
    other_body,
    over_budget,
)
from capelet.service.schemas import EncodingFormat, Query, parse_query
from capelet.service.settings import Settings, check_recipe

# People who were refused lately, at most.
_MOST_REFUSALS = 10_000
# An order is made before anything is drawn; the batcher fills it in.
_NO_VECTORS = np.zeros((0, 0), dtype=np.float32)


@runtime_checkable
class CountsTokens(Protocol):
    """An encoder that can say what it reads of a text, and need not read it again."""

    def tokenize(self, texts: Sequence[str]) -> Sequence[str]: ...

    def token_counts(self, texts: Sequence[str]) -> npt.NDArray[np.int64]: ...


@dataclass(frozen=True, eq=False)
class AdmittedRequest:
    """A request that may be served: the job, and how its answer is written."""

    job: Job
    encoding_format: EncodingFormat
    tokens: int
    # How many releases the first answer to this Idempotency-Key was charged for.
    charged_before: int | None = None


class Gateway:
    """A recipe, a store and settings; every method may be called from any thread."""

    def __init__(
        self,
        private: PrivateEncoder,
        ledger: Ledger,
        settings: Settings,
        limits: Limits,
        *,
        allow_unproven: bool = False,
    ) -> None:
        self.guarantee = check_recipe(private, settings.repeats, allow_unproven)
        self.private, self.ledger, self.settings, self.limits = private, ledger, settings, limits
        self._account = Account(ledger, settings.repeats, recipe_hash(private.recipe))
        encoder = private.encoder
        assert encoder is not None  # `check_recipe`: it takes texts
        self.encoder = encoder
        self._inner_encoder = inner = unwrap(encoder)
        # Asked once: to look through a protocol takes as long as to read a line of text.
        self._token_counter = inner if isinstance(inner, CountsTokens) else None
        self._dimension: int | None = None
        self.callers = Callers(ledger)
        # In memory only, and in the order in which they were refused.
        self._refusals: dict[str, None] = {}

    def load(self) -> None:
        """Read the model and learn the width of what is released; minutes at the very first time.

        The text is this one, and what is drawn of it is dropped.
        """
        self._dimension = int(self.private.release(["ready"]).vectors.shape[1])

    @property
    def is_loaded(self) -> bool:
        return self._dimension is not None

    @property
    def dimension(self) -> int:
        if self._dimension is None:
            self.load()
        assert self._dimension is not None
        return self._dimension

    # ---- what is asked ---------------------------------------------------------------------------

    def plan(self, key: ApiKey, body: bytes, idempotency: str | None) -> AdmittedRequest:
        """All that can be decided before anything is drawn."""
        query = parse_query(body, self.settings.model, self.settings.bounds)
        return self.plan_query(key, query, body, idempotency)

    def plan_query(
        self, key: ApiKey, query: Query, body: bytes, idempotency: str | None
    ) -> AdmittedRequest:
        if query.dimensions not in (None, self.dimension):
            raise bad_input(
                f"this model has {self.dimension} dimensions and cannot be cut", "dimensions"
            )
        if self.settings.repeats == "fresh" and idempotency is None:
            raise bad_input(
                f"this gateway draws every request anew ({name_field('repeats', 'fresh')}), so a "
                "retry would be a second release: send an Idempotency-Key"
            )
        subjects = _subjects(query, key)
        texts, lengths = self._count_tokens(query.texts)
        if (tokens := sum(lengths)) > self.settings.bounds.tokens:
            raise bad_input(
                f"the texts have {tokens:,} tokens together; at most "
                f"{self.settings.bounds.tokens:,} in one request",
                "input",
            )
        with StoreErrors():
            request = self._request(key, body, idempotency)
            # By request: a retry of this very one has the same names again.
            run = f"{request.key} {request.digest.hex()} {request.idempotency}" if request else ""
            names = self._account.names(subjects, texts, run, key=key.id)
            answer = None if request is None else self.ledger.answer(request)
            if request is not None and answer is not None and answer.digest != request.digest:
                raise other_body()
            order = Order(
                subjects, names, _NO_VECTORS, self.guarantee, "", self.limits.budget, request
            )
            stored = self.ledger.find(names)
            job = Job(order, texts, lengths, undrawn(names, stored), draws=stored)
            # What no encoder gathers need not wait for others.
            job.gathers_lengths = getattr(self._inner_encoder, "gathers_lengths", False)
            self._check_budget(job)
        return AdmittedRequest(
            job, query.encoding_format, tokens, None if answer is None else answer.charged
        )

    def _request(self, key: ApiKey, body: bytes, idempotency: str | None) -> Request | None:
        """The request under its idempotency key; the digest is of all that decides its answer."""
        if idempotency is None:
            return None
        parts = [self._account.recipe_name.encode(), self.settings.repeats.encode(), body]
        # The store keys it: a plain hash of a short body could be guessed.
        return Request(key.id, idempotency, hashlib.sha256(b"\0".join(parts)).digest())

    def _check_budget(self, job: Job) -> None:
        """Refuse before the draw what is likely to be refused after it: nobody may make us work.

        The store decides, under its lock; this is only cheaper. It is asked where a request alone
        would pass the budget, and about people who were refused a moment ago; of anybody else a
        draw is wasted once, and never for more texts than a budget pays for.
        """
        people = Counter(normalise_person(job.order.subjects[row]) for row in job.waiting)
        most = self.limits.budget.epsilon / self.guarantee.epsilon
        is_doubtful = any(
            count > most or person in self._refusals for person, count in people.items()
        )
        if not is_doubtful:
            return
        subjects = [normalise_person(job.order.subjects[row]) for row in job.waiting]
        try:
            self.ledger.check(needs_of(subjects, job.waiting), self.guarantee, self.limits.budget)
        except BudgetError as error:
            raise refuse_budget(error) from None
        for person in people:
            self._refusals.pop(person, None)

    def note_refusal(self, order: Order) -> None:
        """Remember for a while whom the store refused; the oldest are forgotten."""
        for subject in order.subjects:
            self._refusals[normalise_person(subject)] = None
        while len(self._refusals) > _MOST_REFUSALS:
            self._refusals.pop(next(iter(self._refusals)))

    def _count_tokens(self, texts: Sequence[str]) -> tuple[Sequence[str], list[int]]:
        """What is read of each text, and the texts with it where their encoder can use that."""
        if (counter := self._token_counter) is not None:
            texts = counter.tokenize(texts)
            return texts, counter.token_counts(texts).tolist()
        # OpenAI's rule of thumb, where an encoder has no tokens: four letters are one.
        return texts, [-(-len(text) // 4) for text in texts]


def _subjects(query: Query, key: ApiKey) -> Sequence[str]:
    """About whom each text is; a key that is bound to a person speaks of nobody else."""
    subjects = query.subjects
    if key.subject is None:
        if subjects is None:
            raise bad_input(
                "whom are the texts about? Give 'user' (one person) or 'subjects' (one for each "
                "text), or use a key that is bound to a person",
                "user",
            )
        return subjects
    own = normalise_person(key.subject)
    if subjects is not None and {normalise_person(subject) for subject in subjects} != {own}:
        raise not_allowed("this key is bound to one person and may ask about nobody else")
    return (key.subject,) * len(query.texts)


def refuse_budget(error: BudgetError) -> CapeletError:
    """The refusal of a budget: which texts, never whose."""
    rows = ", ".join(map(str, error.rows))
    people = "a person" if error.count == 1 else f"{error.count} people"
    return over_budget(
        f"the budget of {error.budget.sentence()} does not cover this request for {people} "
        f"(first texts: {rows}); nothing was released and nothing charged"
    )
