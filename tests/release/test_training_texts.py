"""What leaves says nothing of the texts that trained: not the metadata, not the folder.

The demonstration: an attacker knows all training rows but one, and has eight candidates for it. He
trains on each and compares with what a released file says about itself. While that held a hash of
the map, the true row was found every time, at a stated ε of 0.5.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from capelet.data.labels import Attribute
from capelet.defences import Settings, fit
from capelet.defences.settings import Part, Schedule
from capelet.encoders.autoencoder import AutoEncoder
from capelet.encoders.own import OWN
from capelet.errors import CapeletError, DataError
from capelet.mechanisms import Laplace
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.privacy.origins import Origin, remember_training_rows
from capelet.release import PrivateEncoder, recipe_hash
from capelet.release.batch import encode
from capelet.release.maps import Map, affine
from capelet.release.overlap import only_unseen, trained_rows

TRUE = 5
SETTINGS = Settings(epsilon=0.5, mechanism="response", schedule=Schedule(epochs=2, batch=16))


def trained_on(row: np.ndarray) -> PrivateEncoder:
    """The whole training, which is public and seeded, with this row as the first one."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(40, 4)).astype(np.float32)
    vectors[0] = row
    codes = (vectors[:, 0] > 0).astype(np.intp)
    codes[0] = 1
    task = Attribute("task", codes, ("no", "yes"))
    part = Part(vectors, np.arange(30), np.arange(30, 40), task, ())
    return PrivateEncoder(*fit("bottleneck", part, SETTINGS).steps)


@pytest.fixture(scope="module")
def candidates() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)


def released_metadata(private: PrivateEncoder, folder: Path, number: int) -> bytes:
    """What a released file of other people's vectors says about itself."""
    rows = np.random.default_rng(2).normal(size=(10, 4)).astype(np.float32).tolist()
    source, target = folder / "in.parquet", folder / f"out-{number}.parquet"
    pa.parquet.write_table(pa.table({"v": rows}), source)
    encode(source, target, private, vectors="v")
    metadata: dict[bytes, bytes] = pa.parquet.read_schema(target).metadata
    return b"".join(key + value for key, value in sorted(metadata.items()))


def test_no_candidate_for_a_training_row_is_found_from_the_metadata(
    candidates: np.ndarray, tmp_path: Path
) -> None:
    released = released_metadata(trained_on(candidates[TRUE]), tmp_path, 8)
    tries = [
        released_metadata(trained_on(row), tmp_path, number)
        for number, row in enumerate(candidates)
    ]
    matches = [number for number, content in enumerate(tries) if content == released]
    assert matches == []  # with a hash of the map in the file it was [5]
    # The control: the maps themselves do differ, and the right candidate gives the very same one.
    digests = [trained_on(row).steps[0].digest for row in candidates]  # type: ignore[attr-defined]
    assert len(set(digests)) == len(candidates)
    # Beside the random id, all eight files say the same: nothing depends on the candidate.
    assert len({_without_ids(content) for content in [*tries, released]}) == 1
    assert not re.search(rb"[0-9a-f]{40}", released)


def _without_ids(content: bytes) -> bytes:
    return re.sub(rb'"id": "[0-9a-f]{32}"', b'"id"', content)


def test_the_folder_that_ships_has_no_digest_of_texts(tmp_path: Path) -> None:
    """Only the manifest hashes, and only what lies beside it."""
    learnt = AutoEncoder(OWN, ("cat", "dog"), np.eye(2, dtype="f4"), np.zeros(2, "f4"))
    private = PrivateEncoder(learnt, Map((affine(np.eye(2), np.zeros(2)),)), Laplace(8.0))
    folder = private.save(tmp_path / "private", {"method": "ae"})
    for name in ("recipe.toml", "private.json"):
        text = (folder / name).read_text()
        assert not re.search(r"[0-9a-f]{40}", text) and learnt.fingerprint[:16] not in text
    # A name computed from the recipe is computed from its public form.
    assert recipe_hash(private.recipe) != recipe_hash(PrivateEncoder(learnt, Laplace(8.0)).recipe)
    assert learnt.fingerprint not in json.dumps(private.recipe)


# ---- what the texts that trained are promised ----------------------------------------------------


def test_what_training_texts_are_promised_stands_in_the_guarantee(tmp_path: Path) -> None:
    identity = affine(np.eye(4), np.zeros(4))
    learnt = Map((identity,))
    assert PrivateEncoder(Laplace(2.0)).guarantee.training is None  # nothing was learnt
    private = PrivateEncoder(learnt, Laplace(2.0))
    assert private.guarantee == Guarantee(2.0, training=NONE)
    assert private.guarantee.sentence().endswith("; training texts: no guarantee")
    release = private.release(np.ones((2, 4)))
    assert json.loads(release.metadata()[b"capelet"])["guarantee"]["training"]["notion"] == "none"
    folder = private.save(tmp_path / "private")
    assert PrivateEncoder.load(folder).guarantee == private.guarantee
    assert "training texts: no guarantee" in (folder / "private.json").read_text()


def test_promises_of_several_trainings_add_up_and_one_map_counts_once(tmp_path: Path) -> None:
    promise = Guarantee(3.0, 1e-6, "central", neighbours="replace")
    identity = affine(np.eye(4), np.zeros(4))
    one, two = (Map((identity,), origin=Origin.draw(promise)) for _ in range(2))
    twice = PrivateEncoder(one, one, Laplace(2.0))
    assert twice.guarantee.training == promise
    both = PrivateEncoder(one, two, Laplace(2.0))
    assert both.guarantee.training == replace(promise, epsilon=6.0, delta=2e-6)
    back = PrivateEncoder.load(both.save(tmp_path / "both"))
    assert back.guarantee == both.guarantee
    # One part without a promise leaves none.
    assert PrivateEncoder(one, Map((identity,))).guarantee.training == NONE


def test_an_encoder_that_learnt_counts_as_a_map_does() -> None:
    learnt = AutoEncoder(OWN, ("cat", "dog"), np.eye(2, dtype="f4"), np.zeros(2, "f4"))
    assert PrivateEncoder(learnt, Laplace(2.0)).guarantee.training == NONE
    assert PrivateEncoder("wordllama", Laplace(2.0)).guarantee.training is None


# ---- texts that trained, among those that are to be released -------------------------------------


@pytest.fixture
def texts(tmp_path: Path) -> tuple[Path, list[str]]:
    content = [f"text number {number} about cats" for number in range(20)]
    source = tmp_path / "texts.parquet"
    pa.parquet.write_table(pa.table({"t": content, "who": [f"p{n}" for n in range(20)]}), source)
    return source, content


@pytest.fixture
def private() -> PrivateEncoder:
    learnt = Map((affine(np.eye(8, 256), np.zeros(8)),))
    return PrivateEncoder("wordllama", learnt, Laplace(8.0))


def test_rows_that_trained_are_counted_and_left_out(
    texts: tuple[Path, list[str]], private: PrivateEncoder, tmp_path: Path
) -> None:
    source, content = texts
    remember_training_rows([origin.id for origin in private.origins], content[3:7])
    trained = trained_rows(private, source, "t", None)
    assert np.flatnonzero(trained).tolist() == [3, 4, 5, 6]
    target = tmp_path / "out.parquet"
    for block in (3, 64):
        encode(
            source, target, private, text="t", subject="who", overwrite=True, block=block,
            leave_out=only_unseen(private, trained),
        )  # fmt: skip
        table = pa.parquet.read_table(target)
        # Numbered without gaps: a missing number would name a training text.
        assert table["row"].to_pylist() == list(range(16))
        assert table["who"].to_pylist() == [f"p{n}" for n in range(20) if not 3 <= n < 7]
    whole = tmp_path / "whole.parquet"
    encode(source, whole, private, text="t")
    assert _metadata(whole) == _metadata(target)  # the overlap is told nowhere in the file


def _metadata(path: Path) -> Any:
    return json.loads(pa.parquet.read_schema(path).metadata[b"capelet"])


def test_only_unseen_is_refused_where_nobody_can_tell(
    texts: tuple[Path, list[str]], private: PrivateEncoder
) -> None:
    source, content = texts
    assert not trained_rows(private, source, "t", None).size
    with pytest.raises(CapeletError, match="cannot tell which rows trained"):
        only_unseen(private, np.zeros(0, dtype=bool))
    remember_training_rows([origin.id for origin in private.origins], content)
    with pytest.raises(DataError, match="all 20 rows trained this encoder"):
        only_unseen(private, trained_rows(private, source, "t", None))
    # The control: where nothing was learnt, nothing is left out.
    assert only_unseen(PrivateEncoder("wordllama"), np.zeros(0, dtype=bool)) is None
