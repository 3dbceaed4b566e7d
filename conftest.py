"""Adapters whose framework is not installed here cannot be imported, and are not looked through.

Their examples run in environments of their own (tests/integrations/test_frameworks.py).
"""

from importlib.util import find_spec

FRAMEWORKS = {
    "langchain": "langchain_core",
    "llama_index": "llama_index",
    "haystack": "haystack",
    "chroma": "chromadb",
    "qdrant": "qdrant_client",
}
collect_ignore = [
    f"src/capelet/integrations/{module}.py"
    for module, package in FRAMEWORKS.items()
    if find_spec(package) is None
]
