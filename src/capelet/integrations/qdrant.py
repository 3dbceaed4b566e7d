"""Qdrant: points with released vectors, and queries.

    private = PrivatePoints("private/mails", store="people.db", budget=40)
    client.create_collection("mails", vectors_config=private.vector_params())
    client.upsert("mails", private.points(texts, ids=ids, subjects=authors))
    client.query_points("mails", query=private.query("refund", subject="ann"))

**It charges nobody unless it is given a store** (`embedder`). The payload is what you give: no text
is put into it by itself, for a text in the payload is a text that the store has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from capelet.errors import CapeletError, MissingExtra
from capelet.integrations.embedder import Embedder
from capelet.release.metered import Subjects

try:
    from qdrant_client.models import Distance, PointStruct, VectorParams
except ImportError:
    raise MissingExtra("Qdrant's points", "qdrant") from None


class PrivatePoints(Embedder):
    """Texts in, Qdrant's points with released vectors out; queries are released alike.

    It charges nobody unless it is given a store, and then needs `subjects`, `about` or `subject`.
    """

    def vector_params(self, distance: Distance = Distance.COSINE) -> VectorParams:
        """How a collection of these vectors is made."""
        return VectorParams(size=self.dimension, distance=distance)

    def points(
        self,
        texts: Sequence[str],
        *,
        ids: Sequence[int | str],
        payloads: Sequence[Mapping[str, Any]] | None = None,
        subjects: Subjects = None,
    ) -> list[PointStruct]:
        """Points to upsert: an id, a released vector, and the payload that you give."""
        rows = [{}] * len(texts) if payloads is None else payloads
        # Before anything is drawn: what cannot be written must not be charged.
        if not len(texts) == len(ids) == len(rows):
            raise CapeletError(
                f"there are {len(texts)} texts, {len(ids)} ids and {len(rows)} payloads; give one "
                "of each for each point"
            )
        vectors = self.embed(texts, subjects)
        return [
            PointStruct(id=name, vector=vector, payload=dict(row))
            for name, vector, row in zip(ids, vectors, rows, strict=True)
        ]

    def query(self, text: str, subject: str | None = None) -> list[float]:
        """The released vector of a query: noise as for a point, and the same charge."""
        return self.embed_one(text, subject)
