"""Clients as people have them, each in an environment of its own, against a running gateway."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.release.heads import Head
from service.environments import environment, run_client
from service.running import MODEL, Running, planted_head

pytestmark = pytest.mark.slow
Serve = Callable[..., Running]

OPENAI = """
import json, sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
answer = client.embeddings.create(model="private", input=["one", "two"], user="ann")
print(json.dumps({
    "vectors": [item.embedding for item in answer.data],
    "tokens": answer.usage.total_tokens,
    "privacy": answer.privacy,
    "models": [item.id for item in client.models.list()],
}))
"""


def is_stored(running: Running, vectors: list[list[float]], *texts: str) -> bool:
    """Whether these are the stored vectors to the last bit; asked for again, they cost nothing."""
    answer = running.ask(list(texts)).json()
    assert answer["privacy"]["charged"] == 0.0
    # Clients hold the numbers as doubles, from base64 or from the shortest decimals.
    both = (
        np.array(item, dtype=np.float32)
        for item in (vectors, [item["embedding"] for item in answer["data"]])
    )
    return np.array_equal(*both)


def count_requests(running: Running) -> int:
    figures = running.service.metrics.export().decode().splitlines()
    rows = [line for line in figures if line.startswith('capelet_requests_total{route="/v1/emb')]
    return int(sum(float(row.split()[-1]) for row in rows))


def test_openai_with_default_settings(serve: Serve) -> None:
    running = serve()
    answer = run_client("openai", OPENAI, running.url)
    # Its default is base64, which it decodes itself.
    assert is_stored(running, answer["vectors"], "one", "two")
    assert answer["privacy"]["charged"] == 4.0 and answer["tokens"] > 0
    assert answer["models"] == [MODEL]


OPENAI_TIMEOUT = """
import json, sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", timeout=1.5)
answer = client.embeddings.create(model="private", input="slow", user="ann")
print(json.dumps({"vector": answer.data[0].embedding, "charged": answer.privacy["charged"]}))
"""


def test_a_retry_without_a_key_gets_what_was_paid_for(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gives up while the text is drawn, and asks again by itself."""
    running = serve()
    environment("openai")  # before the clock runs
    release, is_first = running.gateway.private.release, threading.Event()

    def slow(*arguments: Any) -> Any:
        vectors = release(*arguments)
        if not is_first.is_set():
            is_first.set()
            time.sleep(3.0)
        return vectors

    monkeypatch.setattr(running.gateway.private, "release", slow)
    answer = run_client("openai", OPENAI_TIMEOUT, running.url)
    assert count_requests(running) >= 2
    assert running.ledger.counts().releases == 1
    assert is_stored(running, [answer["vector"]], "slow")


OPENAI_EXHAUSTED = """
import json, sys
from openai import OpenAI, RateLimitError
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
try:
    client.embeddings.create(model="private", input=["a", "b", "c"], user="ann")
except RateLimitError as error:
    print(json.dumps({"code": error.code, "type": error.type}))
"""


def test_an_exhausted_budget_costs_openai_one_request(serve: Serve) -> None:
    running = serve(budget=4.0)
    answer = run_client("openai", OPENAI_EXHAUSTED, running.url)
    assert answer == {"code": "insufficient_quota", "type": "insufficient_quota"}
    assert count_requests(running) == 1


LITELLM = """
import json, sys
import litellm
answer = litellm.embedding(
    model="openai/private", input=["one", "two"], api_base=sys.argv[1] + "/v1", api_key="none",
    user="ann", encoding_format="float",
)
headers = answer._response_headers or answer._hidden_params.get("additional_headers") or {}
print(json.dumps({
    "vectors": [item["embedding"] for item in answer.data],
    "headers": {str(name): str(value) for name, value in dict(headers).items()},
}))
"""


def test_litellm(serve: Serve) -> None:
    running = serve()
    answer = run_client("litellm", LITELLM, running.url)
    assert is_stored(running, answer["vectors"], "one", "two")
    # It drops fields of the body that it does not know; headers come through.
    charged = [value for name, value in answer["headers"].items() if name.endswith("charged")]
    assert charged == ["4.0"]


LANGCHAIN = """
import json, sys
from langchain_openai import OpenAIEmbeddings
settings = {"base_url": sys.argv[1] + "/v1", "api_key": "none", "model": "private"}
settings["model_kwargs"] = {"user": "ann"}
vectors = OpenAIEmbeddings(check_embedding_ctx_length=False, **settings).embed_documents(["one"])
print(json.dumps({"vectors": vectors}))
"""


def test_langchain(serve: Serve) -> None:
    running = serve()
    answer = run_client("langchain-openai", LANGCHAIN, running.url)
    assert is_stored(running, answer["vectors"], "one")


LANGCHAIN_TOKENS = """
import json, sys
from openai import BadRequestError, OpenAI
client = OpenAI(base_url=sys.argv[1] + "/v1", api_key="none")
try:
    client.embeddings.create(model="private", input=[[1, 2, 3]], user="ann")
except BadRequestError as error:
    print(json.dumps(error.message))
"""


def test_langchains_default_is_told_its_setting(serve: Serve) -> None:
    """Without its setting LangChain sends token ids, as here; its tokenizer needs a network."""
    message = run_client("openai", LANGCHAIN_TOKENS, serve().url)
    assert "check_embedding_ctx_length=False" in message


CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance"
)


@pytest.mark.parametrize("head", [None, planted_head()], ids=["embeddings", "with a head"])
def test_schemathesis_finds_no_fault(serve: Serve, tmp_path: Path, head: Head | None) -> None:
    """At least 500 generated requests: no 5xx, and no answer that OpenAPI does not describe."""
    running = serve(budget=1e9, head=head)
    command = [str(environment("schemathesis") / "schemathesis"), "run"]
    command += [f"{running.url}/openapi.json", "--checks", CHECKS, "--max-examples", "300"]
    command += ["--phases", "examples,coverage,fuzzing", "--seed", "1"]
    command += ["--suppress-health-check", "all", "--warnings", "off"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env=own, cwd=tmp_path
    )
    assert result.returncode == 0, result.stdout[-4000:]
    figures = running.service.metrics.export().decode().splitlines()
    answers = [line.split() for line in figures if line.startswith("capelet_requests_total{")]
    assert sum(float(count) for _, count in answers) >= 500
    is_asked = any("/v1/classify" in labels and 'status="200"' in labels for labels, _ in answers)
    assert is_asked == (head is not None)
    assert not [labels for labels, _ in answers if 'status="5' in labels]
