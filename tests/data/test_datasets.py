"""Every named set loads, or says in one sentence where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capelet.data.corpus import Corpus
from capelet.data.datasets import DATASETS, is_available, load
from capelet.errors import DataError


def test_the_sample_works_offline() -> None:
    corpus = load("reviews")
    assert len(corpus) >= 4000 and corpus.author is not None and len(set(corpus.author)) >= 600
    assert corpus.label_name == "stars" and set(corpus.private) == {
        "gender",
        "age_group",
        "country",
    }
    assert load("reviews").digest() == corpus.digest()


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"reviews"}))
def test_every_set_loads(name: str, dataset: Callable[..., Corpus]) -> None:
    corpus = dataset(name)
    about = DATASETS[name]
    assert len(corpus) > 3000 and set(corpus.private) == set(about.private)
    assert (corpus.label is None) == (about.label is None)
    assert about.source and about.licence and about.citation


def test_a_missing_set_gives_one_clear_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CAPELET_DATA", str(tmp_path))
    monkeypatch.setenv("CAPELET_CACHE", str(tmp_path / "cache"))
    with pytest.raises(
        DataError, match=r"get the Blog Authorship Corpus .* put it as blog.parquet"
    ):
        load("blog")
    assert not is_available("blog") and is_available("reviews")
    with pytest.raises(DataError, match="did you mean 'reviews'"):
        load("reveiws")
