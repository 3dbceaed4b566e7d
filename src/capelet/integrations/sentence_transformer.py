"""sentence-transformers: a private encoder as a `SentenceTransformer`, in this process.

    model = capelet.sentence_transformer("private/mails")
    model.encode(["a text"])             # released vectors; fresh noise in every call

`SentenceTransformer(folder)` itself refuses modules from outside without `trust_remote_code=True`,
which would run whatever code a folder holds; so the one module is built here.
**It charges nobody unless it is given a store** (`embedder`). It cannot be trained or saved: what
is saved is the private encoder's own folder.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule

from capelet.errors import CapeletError
from capelet.integrations.embedder import Embedder
from capelet.ledger.budgets import Budget
from capelet.release.charging import Repeats
from capelet.release.metered import Source, Store


class PrivateModule(InputModule):
    """All steps of a private encoder as the only module of a model; texts in, releases out."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._embedder = embedder

    def preprocess(self, inputs: Any, prompt: str | None = None, **settings: Any) -> dict[str, Any]:
        """The texts as they are; a prompt becomes part of the text that is released."""
        return {"texts": [f"{prompt or ''}{text}" for text in inputs]}

    def forward(self, features: dict[str, Any], **settings: Any) -> dict[str, Any]:
        """The released vectors alone: neither texts nor token vectors leave the module."""
        vectors = self._embedder.embed(features["texts"])
        return {"sentence_embedding": torch.tensor(vectors, dtype=torch.float32)}

    def get_embedding_dimension(self) -> int:
        return self._embedder.dimension

    def save(self, output_path: str, *settings: Any, **more: Any) -> NoReturn:
        raise CapeletError(
            "a private encoder is not saved as a SentenceTransformer: its guarantee and manifest "
            "would be lost; use PrivateEncoder.save"
        )


def sentence_transformer(
    source: Source,
    *,
    store: Store | None = None,
    budget: float | Budget | None = None,
    repeats: Repeats = "same",
    subject: str | None = None,
) -> SentenceTransformer:
    """A private encoder (or its folder, or recipe) as a `SentenceTransformer`.

    It charges nobody unless it is given a store, and then needs `about` or `subject`. With a store,
    texts of one call are settled batch by batch: an exhausted budget raises, and what the batches
    before it were charged stays.
    """
    embedder = Embedder(source, store=store, budget=budget, repeats=repeats, subject=subject)
    return SentenceTransformer(modules=[PrivateModule(embedder)], device="cpu")
