"""LlamaIndex: private vectors wherever a `BaseEmbedding` is asked for.

    Settings.embed_model = PrivateEmbedding("private/mails", store="people.db", budget=40)

**It charges nobody unless it is given a store** (`embedder`). A node's text includes what its
metadata add (`MetadataMode.EMBED`): all of it is what is released and charged. An index keeps the
nodes' texts beside the vectors.
"""

from __future__ import annotations

import asyncio
from typing import Any

from capelet.errors import MissingExtra
from capelet.integrations.embedder import Embedder
from capelet.ledger.budgets import Budget
from capelet.release.charging import Repeats
from capelet.release.metered import Source, Store

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr
except ImportError:
    raise MissingExtra("LlamaIndex's BaseEmbedding", "llama-index") from None


class PrivateEmbedding(BaseEmbedding):
    """A private encoder as LlamaIndex's `BaseEmbedding`; texts and queries are released alike.

    It charges nobody unless it is given a store, and then needs `about` or `subject`.
    `settings` are LlamaIndex's own, such as `embed_batch_size`.
    """

    _embedder: Embedder = PrivateAttr()

    def __init__(
        self,
        source: Source,
        *,
        store: Store | None = None,
        budget: float | Budget | None = None,
        repeats: Repeats = "same",
        subject: str | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(model_name="capelet", **settings)
        self._embedder = Embedder(
            source, store=store, budget=budget, repeats=repeats, subject=subject
        )

    @classmethod
    def class_name(cls) -> str:
        return "PrivateEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embedder.embed(texts)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embedder.embed_one(text)

    _get_query_embedding = _get_text_embedding  # a query is a release, too

    # Off the loop: encoding takes long. `to_thread` takes the person of `about` along.
    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._embedder.embed, texts)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._embedder.embed_one, text)

    _aget_query_embedding = _aget_text_embedding
