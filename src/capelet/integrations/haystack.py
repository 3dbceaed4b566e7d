"""Haystack: a document embedder and a text embedder for pipelines.

    PrivateDocumentEmbedder("private/mails", store="people.db", subject_field="author")

**They charge nobody unless they are given a store** (`embedder`). A document's subject is read from
its metadata where `subject_field` says which; otherwise it is that of `about` or `subject`.
A component that is written to YAML and read again keeps its store, and forgets who was charged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from capelet.errors import CapeletError, MissingExtra
from capelet.integrations.embedder import Charges, Embedder
from capelet.ledger.budgets import Budget
from capelet.release.charging import Repeats
from capelet.release.metered import Source, Store
from capelet.silence import warn_if_late

warn_if_late("haystack-ai")
try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ImportError:
    raise MissingExtra("Haystack's components", "haystack") from None


@component
class PrivateTextEmbedder:
    """A query in, its released vector out; charged like a document."""

    def __init__(
        self,
        source: Source,
        *,
        store: Store | None = None,
        budget: float | Budget | None = None,
        repeats: Repeats = "same",
        subject: str | None = None,
    ) -> None:
        self._embedder = Embedder(source, Charges(store, budget, repeats, subject))

    @component.output_types(embedding=list[float])
    def run(self, text: str, subject: str | None = None) -> dict[str, Any]:
        """The released vector of the text, about this person where one is named."""
        return {"embedding": self._embedder.embed_one(text, subject)}

    def to_dict(self) -> dict[str, Any]:
        embedder = self._embedder
        return default_to_dict(self, source=embedder.place, **embedder.charges.to_json())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivateTextEmbedder:
        return default_from_dict(cls, data)


@component
class PrivateDocumentEmbedder:
    """Documents in, the same documents with released vectors out."""

    def __init__(
        self,
        source: Source,
        *,
        store: Store | None = None,
        budget: float | Budget | None = None,
        repeats: Repeats = "same",
        subject: str | None = None,
        subject_field: str | None = None,
    ) -> None:
        if subject_field is not None and (store is None or subject is not None):
            raise CapeletError("subject_field= needs store=, and stands in the place of subject=")
        self._embedder = Embedder(source, Charges(store, budget, repeats, subject))
        self._subject_field = subject_field

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """The documents with their released vectors; all of them, or an error and none."""
        texts = [document.content or "" for document in documents]
        field = self._subject_field
        # A document without the field has an empty subject, which is refused.
        subjects = field and [str(document.meta.get(field) or "") for document in documents]
        vectors = self._embedder.embed(texts, subjects or None)
        rows = zip(documents, vectors, strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in rows]}

    def to_dict(self) -> dict[str, Any]:
        embedder = self._embedder
        settings = {**embedder.charges.to_json(), "subject_field": self._subject_field}
        return default_to_dict(self, source=embedder.place, **settings)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PrivateDocumentEmbedder:
        return default_from_dict(cls, data)
