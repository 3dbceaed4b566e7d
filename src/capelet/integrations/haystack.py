"""Haystack: a document embedder and a text embedder for pipelines.

    PrivateDocumentEmbedder("private/mails", store="people.db", subject_field="author")

**They charge nobody unless they are given a store** (`embedder`). A document's subject is read from
its metadata where `subject_field` says which; otherwise it is that of `about` or `subject`.
A component that is written to YAML and read again keeps its store, and forgets who was charged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from capelet.errors import CapeletError, MissingExtra
from capelet.integrations.embedder import Embedder
from capelet.release.metered import Source
from capelet.silence import warn_if_late

warn_if_late("haystack-ai")
try:
    from haystack import Document, component, default_from_dict, default_to_dict
except ImportError:
    raise MissingExtra("Haystack's components", "haystack") from None


class _Component(Embedder):
    """What both components have: they are written down without who is charged, and read again."""

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, **self.to_json())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return default_from_dict(cls, data)


@component
class PrivateTextEmbedder(_Component):
    """A query in, its released vector out; charged like a document."""

    @component.output_types(embedding=list[float])
    def run(self, text: str, subject: str | None = None) -> dict[str, Any]:
        """The released vector of the text, about this person where one is named."""
        return {"embedding": self.embed_one(text, subject)}


@component
class PrivateDocumentEmbedder(_Component):
    """Documents in, the same documents with released vectors out; `charges` as of `Embedder`."""

    def __init__(self, source: Source, *, subject_field: str | None = None, **charges: Any) -> None:
        # Not by `super()`: Haystack makes a class of its own from this one.
        _Component.__init__(self, source, **charges)
        if subject_field is not None and (self.store is None or self.subject is not None):
            raise CapeletError("subject_field= needs store=, and stands in the place of subject=")
        self.subject_field = subject_field

    @component.output_types(documents=list[Document])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """The documents with their released vectors; all of them, or an error and none."""
        texts = [document.content or "" for document in documents]
        field = self.subject_field
        # A document without the field has an empty subject, which is refused.
        subjects = field and [str(document.meta.get(field) or "") for document in documents]
        rows = zip(documents, self.embed(texts, subjects or None), strict=True)
        return {"documents": [replace(document, embedding=vector) for document, vector in rows]}

    def to_json(self) -> dict[str, Any]:
        return {**Embedder.to_json(self), "subject_field": self.subject_field}
