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

from typing import TYPE_CHECKING

from capelet.errors import MissingExtra
from capelet.integrations.embedder import Charges, Embedder
from capelet.ledger.budgets import Budget
from capelet.release.charging import Repeats
from capelet.release.metered import Source, Store, Subjects

try:
    from langchain_core.embeddings import Embeddings
except ImportError:
    raise MissingExtra("LangChain's Embeddings", "langchain") from None

if TYPE_CHECKING:
    from capelet.privacy.guarantees import Guarantee


class PrivateEmbeddings(Embeddings):
    """A private encoder as LangChain's `Embeddings`; documents and queries are released alike.

    It charges nobody unless it is given a store, and then needs `about` or `subject`.
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
        self._embedder = Embedder(source, Charges(store, budget, repeats, subject))

    @property
    def guarantee(self) -> Guarantee:
        return self._embedder.guarantee

    def embed_documents(self, texts: list[str], subjects: Subjects = None) -> list[list[float]]:
        """The released vectors; `subjects` names a person for each text, where you call it."""
        return self._embedder.embed(texts, subjects)

    def embed_query(self, text: str) -> list[float]:
        """The released vector of a query: noise as for a document, and the same charge."""
        return self._embedder.embed_one(text)
