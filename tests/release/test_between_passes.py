"""What happens between noticing and releasing: an edited file, a map after the noise."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capelet.errors import DataError
from capelet.mechanisms import Laplace, Projection, WordDropout
from capelet.mechanisms.words import amplify
from capelet.privacy.guarantees import Guarantee
from capelet.release import PrivateEncoder
from capelet.release.batch import encode


def write(path: Path, vectors: np.ndarray) -> None:
    pq.write_table(pa.table({"v": list(vectors)}), path)


def one_value(vectors: np.ndarray) -> np.ndarray:
    vectors[73, 2] += 1.0
    return vectors


def two_rows_swapped(vectors: np.ndarray) -> np.ndarray:
    vectors[[5, 6]] = vectors[[6, 5]]
    return vectors


def two_blocks_swapped(vectors: np.ndarray) -> np.ndarray:
    return np.concatenate([vectors[20:40], vectors[:20], vectors[40:]])


def one_row_more(vectors: np.ndarray) -> np.ndarray:
    return np.concatenate([vectors, vectors[:1]])


@pytest.mark.parametrize("edit", [one_value, two_rows_swapped, two_blocks_swapped, one_row_more])
def test_an_edit_between_the_passes_is_noticed_whatever_the_length(
    tmp_path: Path, edit: Callable[[np.ndarray], np.ndarray]
) -> None:
    """What was checked, and paid for, must be what is released: the times of the file are kept."""
    source = tmp_path / "in.parquet"
    vectors = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    write(source, vectors)
    before = source.stat()

    def meddle(what: str, done: int, total: int) -> None:
        if what == "checking" and done == total:
            source.unlink()
            write(source, edit(vectors.copy()))
            os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))

    private = PrivateEncoder(Laplace(2.0))
    with pytest.raises(DataError, match="changed while it was read"):
        encode(source, tmp_path / "out.parquet", private, vectors="v", block=20, progress=meddle)
    assert not (tmp_path / "out.parquet").exists()


def test_the_same_rows_written_again_are_no_edit(tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    vectors = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    write(source, vectors)

    def meddle(what: str, done: int, total: int) -> None:
        if what == "checking" and done == total:
            source.unlink()
            write(source, vectors)

    private = PrivateEncoder(Laplace(2.0))
    encode(source, tmp_path / "out.parquet", private, vectors="v", block=20, progress=meddle)
    assert pq.read_table(tmp_path / "out.parquet").num_rows == 100


def test_a_map_after_the_noise_changes_no_promise_for_words() -> None:
    """It is post-processing; before the dropout it would not be."""
    plain = PrivateEncoder(WordDropout(0.5), "wordllama", Laplace(2.0))
    after = PrivateEncoder(WordDropout(0.5), "wordllama", Laplace(2.0), Projection(4))
    between = PrivateEncoder(WordDropout(0.5), "wordllama", Projection(4), Laplace(2.0))
    wanted = Guarantee(amplify(2.0, 0.5), unit="word")
    assert plain.word_guarantee == after.word_guarantee == between.word_guarantee == wanted
    assert after.guarantee == Guarantee(2.0)
    assert PrivateEncoder("wordllama", Laplace(2.0), Projection(4)).word_guarantee is None
    # Of two local noises the stronger counts, wherever it stands.
    for first, second in ((2.0, 3.0), (3.0, 2.0)):
        both = PrivateEncoder(
            WordDropout(0.5), "wordllama", Laplace(first), Projection(4), Laplace(second)
        )
        assert both.word_guarantee == wanted
