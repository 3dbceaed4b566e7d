"""LangChain: private vectors wherever an `Embeddings` is asked for.

    embeddings = PrivateEmbeddings("private/mails", store="people.db", budget=40)
    store = InMemoryVectorStore(embeddings)
    with about("ann"):
        store.add_texts(texts)
        store.similarity_search("refund")        # the query is charged as well

**It charges nobody unless it is given a store** (`embedder`). Most vector stores keep the text
beside its vector (`page_content`): then the store has the text, and noise on the vector hides
nothing from it.
"""

from __future__ import annotations

from capelet.errors import MissingExtra
from capelet.integrations.embedder import Embedder
from capelet.release.metered import Subjects

try:
    from langchain_core.embeddings import Embeddings
except ImportError:
    raise MissingExtra("LangChain's Embeddings", "langchain") from None


class PrivateEmbeddings(Embedder, Embeddings):
    """A private encoder as LangChain's `Embeddings`; documents and queries are released alike.

    It charges nobody unless it is given a store, and then needs `about` or `subject`.
    """

    def embed_documents(self, texts: list[str], subjects: Subjects = None) -> list[list[float]]:
        """The released vectors; `subjects` names a person for each text, where you call it."""
        return self.embed(texts, subjects)

    def embed_query(self, text: str) -> list[float]:
        """The released vector of a query: noise as for a document, and the same charge."""
        return self.embed_one(text)
