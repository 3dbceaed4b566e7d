"""Capelet inside other libraries.

scikit-learn's estimators are here. Each other framework has a module of its own, imported where it
is used: `langchain`, `llama_index`, `haystack`, `chroma`, `qdrant`, `sentence_transformer`.
"""

from capelet.integrations.embedder import about
from capelet.integrations.scikit_learn import Cape, Protector

__all__ = ["Cape", "Protector", "about"]
