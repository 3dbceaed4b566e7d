"""Adapters share one core: whom a call is about, and what it costs; shown with LangChain's."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.integrations import about
from capelet.integrations.embedder import Embedder
from capelet.ledger.budgets import Budget, BudgetError
from capelet.ledger.store import Ledger
from capelet.mechanisms import MECHANISMS
from capelet.release import PrivateEncoder

pytest.importorskip("wordllama")


@pytest.fixture(scope="module")
def private() -> PrivateEncoder:
    return PrivateEncoder("wordllama", MECHANISMS["laplace"](epsilon=2.0))


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with Ledger(tmp_path / "people.db") as ledger:
        yield ledger


def spent(ledger: Ledger, person: str) -> float:
    total = ledger.spent(person)
    return 0.0 if total is None else total.epsilon


def test_a_block_names_the_person(private: PrivateEncoder, ledger: Ledger) -> None:
    embedder = Embedder(private, store=ledger, subject="bob")
    with about("ann"):
        embedder.embed(["one", "two"])
        with about("eve"):
            embedder.embed_one("three")
        embedder.embed_one("four")
    embedder.embed_one("five")
    assert [spent(ledger, person) for person in ("ann", "bob", "eve")] == [6.0, 2.0, 2.0]


def test_nobody_named_draws_nothing(private: PrivateEncoder, ledger: Ledger) -> None:
    embedder = Embedder(private, store=ledger)
    with pytest.raises(CapeletError, match="whom are these texts about"):
        embedder.embed(["one"])
    with pytest.raises(CapeletError, match="one person"), about(["ann", "bob"]):  # type: ignore[arg-type]
        embedder.embed(["one", "two"])
    assert ledger.counts().releases == 0
    with pytest.raises(CapeletError, match="give store="):
        Embedder(private, subject="ann")


def test_a_thread_that_knows_nothing_of_the_block_is_refused(
    private: PrivateEncoder, ledger: Ledger
) -> None:
    embedder = Embedder(private, store=ledger)
    errors: list[CapeletError] = []

    def embed() -> None:
        try:
            embedder.embed(["one"])
        except CapeletError as error:
            errors.append(error)

    with about("ann"):
        thread = threading.Thread(target=embed)
        thread.start()
        thread.join()
    assert len(errors) == 1 and ledger.counts().releases == 0


def test_what_is_written_down_names_nobody(private: PrivateEncoder, tmp_path: Path) -> None:
    folder, store = private.save(tmp_path / "private"), tmp_path / "people.db"
    embedder = Embedder(folder, store=store, budget=8.0, repeats="fresh", subject="ann")
    charges = {"store": str(store), "budget": 8.0, "repeats": "fresh"}
    assert embedder.to_json() == {"source": str(folder), **charges}
    with pytest.raises(CapeletError, match="in memory"):
        Embedder(private).to_json()
    with pytest.raises(CapeletError, match="open store"):
        Embedder(folder, store=Ledger(store)).to_json()
    with pytest.raises(CapeletError, match="with a δ"):
        Embedder(folder, store=store, budget=Budget(8.0, 1e-6)).to_json()


# ---- LangChain -----------------------------------------------------------------------------------


def langchain(source: Any, **options: Any) -> Any:
    pytest.importorskip("langchain_core")
    from capelet.integrations.langchain import PrivateEmbeddings

    return PrivateEmbeddings(source, **options)


def test_langchain_finds_the_nearest_text(private: PrivateEncoder) -> None:
    """At an ε that hides little: the vectors still mean something, and each has its own noise."""
    weak = PrivateEncoder("wordllama", MECHANISMS["privunit"](epsilon=200.0))
    embeddings = langchain(weak)
    from langchain_core.vectorstores import InMemoryVectorStore

    store = InMemoryVectorStore(embeddings)
    store.add_texts(["the train to the coast was late", "my cat sleeps on the warm stove"])
    (document,) = store.similarity_search("cats sleep", k=1)
    assert "cat" in document.page_content
    first, second = (np.array(embeddings.embed_query("a query")) for _ in range(2))
    assert (first != second).any()


def test_langchain_charges_documents_and_queries(private: PrivateEncoder, ledger: Ledger) -> None:
    embeddings = langchain(private, store=ledger, budget=8.0)
    with about("ann"):
        vectors = embeddings.embed_documents(["one", "two"])
        query = embeddings.embed_query("three")
        assert embeddings.embed_query("one") == vectors[0]  # stored: no second release
    assert len(query) == len(vectors[0]) and spent(ledger, "ann") == 6.0
    embeddings.embed_documents(["four", "five"], subjects=["bob", "eve"])
    assert spent(ledger, "bob") == spent(ledger, "eve") == 2.0
    with about("ann"), pytest.raises(BudgetError):
        embeddings.embed_documents(["six", "seven"])
    assert spent(ledger, "ann") == 6.0
    assert embeddings.guarantee.epsilon == 2.0


def test_langchain_takes_the_person_into_its_threads(
    private: PrivateEncoder, ledger: Ledger
) -> None:
    embeddings = langchain(private, store=ledger)

    async def embed(person: str) -> None:
        with about(person):
            await embeddings.aembed_documents([f"of {person}", "both"])
            await embeddings.aembed_query("query")

    async def both() -> None:
        await asyncio.gather(embed("ann"), embed("bob"))

    asyncio.run(both())
    assert spent(ledger, "ann") == spent(ledger, "bob") == 6.0


@pytest.mark.parametrize("module", ["langchain", "llama_index", "haystack", "chroma", "qdrant"])
def test_a_missing_framework_names_its_extra(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    packages = ("langchain_core", "llama_index", "haystack", "chromadb", "qdrant_client")
    for package in packages:
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"capelet.integrations.{module}", raising=False)
    with pytest.raises(CapeletError, match=rf"capelet\[{module.replace('_', '-')}\]"):
        importlib.import_module(f"capelet.integrations.{module}")
