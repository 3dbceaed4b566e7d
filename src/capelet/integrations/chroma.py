"""Chroma: an embedding function for collections.

    private = PrivateEmbeddingFunction("private/mails", store="people.db", budget=40)
    collection = client.create_collection("mails", embedding_function=private)
    collection.add(ids=ids, embeddings=private.embed(texts, subjects=authors))   # vectors only
    with about("ann"):
        collection.query(query_texts=["refund"])             # the query is charged as well

**It charges nobody unless it is given a store** (`embedder`). `collection.add(documents=texts)`
works too, and gives Chroma the texts themselves: then noise on their vectors hides nothing from
whoever reads the collection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from capelet.errors import CapeletError, MissingExtra
from capelet.integrations.embedder import Embedder
from capelet.release.metered import Subjects

try:
    from chromadb import Documents, EmbeddingFunction, Embeddings
    from chromadb.utils.embedding_functions import register_embedding_function
except ImportError:
    raise MissingExtra("Chroma's EmbeddingFunction", "chroma") from None


# By name, so that a collection which is opened without a function gets `AbsentEncoder` and not
# Chroma's default: that would embed queries without any noise.
@register_embedding_function
class PrivateEmbeddingFunction(Embedder, EmbeddingFunction[Documents]):
    """A private encoder as Chroma's `EmbeddingFunction`; documents and queries alike.

    It charges nobody unless it is given a store, and then needs `about` or `subject`. To name one
    for each text, call `embed`: Chroma wraps `__call__` and lets no second argument through.
    """

    def __call__(self, input: Documents) -> Embeddings:
        return [np.array(vector, dtype=np.float32) for vector in self.embed(list(input))]

    def embed_query(self, input: Documents) -> Embeddings:
        """A query is a release: the same steps, and the same charge."""
        return self(input)

    @staticmethod
    def name() -> str:
        return "capelet"

    def default_space(self) -> Any:
        return "cosine"

    def supported_spaces(self) -> Any:
        return ["cosine", "l2", "ip"]

    # Chroma writes name and configuration into the collection, and makes the function anew from
    # them for whoever opens it. Such a copy would release without the store's charges, so nothing
    # is written, and what is made of it refuses.
    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> EmbeddingFunction[Documents]:
        return AbsentEncoder()


class AbsentEncoder(PrivateEmbeddingFunction):
    """What a collection gets that was opened without its private encoder: it embeds nothing."""

    def __init__(self) -> None:
        """Nothing to keep; Chroma asks for a constructor."""

    def embed(self, texts: Sequence[str], subjects: Subjects = None) -> NoReturn:
        raise CapeletError(
            "a private encoder and its store are not kept in a collection; open it with "
            "embedding_function=PrivateEmbeddingFunction(…)"
        )
