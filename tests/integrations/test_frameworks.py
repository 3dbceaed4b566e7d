"""The page's examples in the frameworks themselves, each in an environment of its own.

Real round trips: texts are added, a query finds the nearest, and the store has a charge for each.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capelet.ledger.store import Ledger
from capelet.mechanisms import MECHANISMS
from capelet.release import PrivateEncoder
from integrations.snippets import BASE, PATHS, run_here, snippet
from service.environments import run_client
from service.running import listen

pytestmark = pytest.mark.slow

END = """
import json
print(json.dumps(result))
"""
# What each framework does beyond its example.
MORE = {
    "LlamaIndex": """
import asyncio
with about("bob"):
    vector = asyncio.run(model.aget_query_embedding("where does the cat sleep?"))
try:
    model.get_query_embedding("of nobody")
    result = "not refused"
except Exception as error:
    result = str(error)
""",
    "Haystack": """
import yaml
text = search.dumps()
assert "people.db" in text and "subject:" not in text
again = PrivateTextEmbedder.from_dict(search.get_component("embed").to_dict())
try:
    again.run("of nobody")
    result = "not refused"
except Exception as error:
    result = str(error)
""",
    "Chroma": """
assert collection.get(include=["documents"])["documents"] == [None, None]
opened = chromadb.PersistentClient("chroma").get_collection("mails")
try:
    opened.query(query_texts=["without the private encoder"], n_results=1)
    raise SystemExit("not refused")
except Exception as error:
    assert "embedding_function=" in str(error)
try:
    collection.query(query_texts=["of nobody"], n_results=1)
    result = "not refused"
except Exception as error:
    result = str(error)
""",
    "Qdrant": """
(row,) = client.retrieve("mails", ids=[2], with_payload=True)
assert row.payload == {}
try:
    private.points(["one"], ids=[1, 2])
    raise SystemExit("not refused")
except Exception as error:
    assert "2 ids" in str(error)
try:
    private.query("of nobody")
    result = "not refused"
except Exception as error:
    result = str(error)
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frameworks")
    run_here(snippet(BASE), folder)
    return folder


@pytest.mark.parametrize(
    ("title", "package", "spent"),
    [
        ("LlamaIndex", "llama-index-core", {"ann": 600.0, "bob": 200.0}),
        ("Haystack", "haystack-ai", {"ann": 200.0, "bob": 200.0, "eve": 200.0}),
        ("Chroma", "chromadb", {"ann": 200.0, "bob": 200.0, "eve": 200.0}),
        ("Qdrant", "qdrant-client", {"ann": 200.0, "bob": 200.0, "eve": 200.0}),
    ],
)
def test_a_round_trip(
    title: str, package: str, spent: dict[str, float], folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "private").symlink_to(folder / "private")
    refusal = run_client(package, PATHS + snippet(title) + MORE[title] + END, tmp_path)
    assert "whom are these texts about" in refusal
    with Ledger(tmp_path / "people.db") as ledger:
        charges = {person: ledger.spent(person) for person in ledger.subjects()}
    assert {person: total.epsilon for person, total in charges.items() if total} == spent


# ---- base URL ------------------------------------------------------------------------------------

ADDRESS = """
import os, sys
os.environ["GATEWAY"] = sys.argv[1]
"""
RESULTS = {
    "openai": "result = [answer.data[0].embedding]",
    "LiteLLM": "result = [answer.data[0]['embedding']]",
    "LangChain's OpenAIEmbeddings": (
        "result = [embeddings.embed_query('where does the cat sleep?')]"
    ),
}


@pytest.mark.parametrize(
    ("title", "package", "text", "charged"),
    [
        ("openai", "openai", "the train was late", 6.0),
        ("LiteLLM", "litellm", "the train was late", 2.0),
        (
            "LangChain's OpenAIEmbeddings",
            "langchain-openai",
            "where does the cat sleep?",
            2.0,
        ),
    ],
)
def test_a_base_url(title: str, package: str, text: str, charged: float, tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    private = PrivateEncoder("wordllama", MECHANISMS["laplace"](epsilon=2.0))
    code = ADDRESS + snippet(title, 3) + RESULTS[title] + END
    with Ledger(tmp_path / "store.db", keeps_names=False) as ledger, listen(ledger, private) as it:
        (vector,) = run_client(package, code, it.url)
        assert ledger.counts().releases * 2.0 == charged
        # What the store holds, which asking again does not charge.
        answer = it.ask(text).json()
    assert answer["privacy"]["charged"] == 0.0
    # As float32, which both are, however many digits either prints.
    assert (np.float32(vector) == np.float32(answer["data"][0]["embedding"])).all()
