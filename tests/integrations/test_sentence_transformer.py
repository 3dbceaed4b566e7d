"""A private encoder as a SentenceTransformer: released vectors only, charged where asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import capelet
from capelet.errors import CapeletError
from capelet.integrations import about
from capelet.ledger.budgets import BudgetError
from capelet.ledger.store import Ledger
from capelet.mechanisms import MECHANISMS

pytest.importorskip("wordllama")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    private = capelet.PrivateEncoder("wordllama", MECHANISMS["privunit"](epsilon=200.0))
    return private.save(tmp_path_factory.mktemp("private") / "folder")


def test_encode_releases(folder: Path) -> None:
    model = capelet.sentence_transformer(folder)
    texts = ["the train was late", "my cat sleeps", "one more text that is the longest of them"]
    first, second = model.encode(texts), model.encode(texts)
    assert first.shape == (3, model.get_embedding_dimension()) and first.dtype == np.float32
    assert (first != second).any(axis=1).all()
    # Rows come back in the order of the texts, though the model sorts them by length. Once in some
    # hundred times PrivUnit's answer lies on the far side; of the mean of many it does not.
    means = [np.mean([model.encode(texts) for _ in range(9)], axis=0) for _ in range(2)]
    likeness = model.similarity(*means).numpy()
    assert (likeness.argmax(axis=1) == np.arange(3)).all()


def test_nothing_but_the_release_leaves_the_module(folder: Path) -> None:
    model = capelet.sentence_transformer(folder)
    (features,) = model.encode(["a text"], output_value=None)
    assert set(features) == {"sentence_embedding"}
    with pytest.raises(Exception, match="token_embeddings"):
        model.encode(["a text"], output_value="token_embeddings")


def test_a_prompt_is_part_of_what_is_released(folder: Path, tmp_path: Path) -> None:
    with Ledger(tmp_path / "people.db") as ledger:
        model = capelet.sentence_transformer(folder, store=ledger, subject="ann")
        plain, prompted = model.encode("a text"), model.encode("a text", prompt="query: ")
        assert (plain != prompted).any() and ledger.counts().releases == 2
        assert (model.encode("query: a text") == prompted).all()
        assert ledger.counts().releases == 2


def test_a_store_charges(folder: Path, tmp_path: Path) -> None:
    with Ledger(tmp_path / "people.db") as ledger:
        model = capelet.sentence_transformer(folder, store=ledger, budget=400.0)
        with pytest.raises(CapeletError, match="whom are these texts about"):
            model.encode(["one"])
        with about("ann"):
            model.encode(["one", "two"])
            with pytest.raises(BudgetError):
                model.encode(["three"])
        total = ledger.spent("ann")
        assert total is not None and total.epsilon == 400.0


def test_it_cannot_be_saved_without_its_guarantee(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CapeletError, match=r"PrivateEncoder\.save"):
        capelet.sentence_transformer(folder).save(str(tmp_path / "model"))
