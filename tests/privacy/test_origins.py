"""Names of learnt things tell nothing; who trained is known to their owner, and in no folder."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.privacy import origins
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.privacy.origins import (
    Origin,
    keep_records,
    keyed_name,
    remember_training_rows,
    same_name,
    seen_in_training,
    unrecorded,
)

TEXTS = ["one text", "another text", "caf\u00e9"]


def test_an_id_is_drawn_anew_whatever_was_learnt() -> None:
    np.random.seed(0)
    first = Origin.draw()
    np.random.seed(0)
    assert first.id != Origin.draw().id and first.training == NONE


def test_an_origin_comes_back_from_json() -> None:
    promise = Guarantee(2.0, 1e-6, "central", neighbours="replace")
    for origin in (Origin.draw(), Origin.draw(promise)):
        assert Origin.from_json(origin.to_json()) == origin


@pytest.mark.parametrize(
    "name", ["", "../../names.key", "A" * 32, "0" * 31, "0" * 32 + "/x", "0" * 32 + "-00000000"]
)
def test_an_id_that_is_no_id_is_refused(name: str) -> None:
    """It becomes the name of a file, and may come from anybody's folder."""
    with pytest.raises(CapeletError, match="32 hexadecimal digits"):
        Origin(name)


def test_a_keyed_name_is_stable_for_one_user_and_useless_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_state: Path
) -> None:
    mine = keyed_name("digest")
    assert mine == keyed_name("digest") != keyed_name("other") and "digest" not in mine
    assert same_name(mine, "digest") and not same_name(mine, "other")
    assert same_name("digest", "digest") and not same_name("digest", "other")  # public
    key = own_state / "names.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600 and len(key.read_bytes()) == 32
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path / "theirs"))
    assert keyed_name("digest") != mine and same_name(mine, "other")  # cannot be compared here


def test_without_a_place_for_a_key_names_hold_for_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path / "file" / "below"))
    assert keyed_name("digest") == keyed_name("digest")


def keep_training_rows(ids: Sequence[str], rows: Any) -> None:
    remember_training_rows(ids, rows)
    keep_records(ids)


def test_rows_that_trained_are_known_and_others_are_not(own_state: Path) -> None:
    one, two = Origin.draw(), Origin.draw()
    keep_training_rows([one.id], TEXTS[:1])
    keep_training_rows([two.id], TEXTS[2:])
    assert seen_in_training([one.id], TEXTS).tolist() == [True, False, False]
    assert seen_in_training([one.id, two.id], TEXTS).tolist() == [True, False, True]
    # One text in two Unicode forms, or with blanks around it, is one text.
    assert seen_in_training([two.id], ["cafe\u0301 ", "cafe"]).tolist() == [True, False]
    assert seen_in_training([], TEXTS).tolist() == [False] * 3
    record = own_state / "training" / one.id
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    assert b"one text" not in record.read_bytes()


def test_two_records_of_the_same_rows_cannot_be_linked(own_state: Path) -> None:
    ids = [Origin.draw().id, Origin.draw().id]
    keep_training_rows(ids, TEXTS)
    first, second = (own_state / "training" / name for name in ids)
    assert not {first.read_bytes()[32:48]} & {second.read_bytes()[i : i + 16] for i in (32, 48, 64)}


def test_vectors_are_rows_too() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    name = Origin.draw().id
    keep_training_rows([name], rows[:2])
    assert seen_in_training([name], rows).tolist() == [True, True, False, False]


def test_a_training_elsewhere_is_not_recorded_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = Origin.draw().id
    keep_training_rows([name], TEXTS)
    assert unrecorded([name]) == ()
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path / "elsewhere"))
    assert unrecorded([name]) == (name,) and not seen_in_training([name], TEXTS).any()


def test_what_is_never_saved_leaves_no_record(own_state: Path) -> None:
    one, two = Origin.draw().id, Origin.draw().id
    remember_training_rows([one, two], TEXTS[:1])
    assert seen_in_training([one], TEXTS).tolist() == [True, False, False]
    assert not (own_state / "training" / one).exists()
    keep_records([two])
    assert (own_state / "training" / two).is_file() and not (own_state / "training" / one).exists()
    assert seen_in_training([two], TEXTS).tolist() == [True, False, False]


def test_the_key_of_a_killed_process_is_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path))
    # As a kill leaves it: written, and not named.
    (tmp_path / ".names.key.0123456789abcdef.part").write_bytes(b"half")
    name = keyed_name("digest")
    # Killed once more, when the key had its name. Not remembered but read.
    (tmp_path / ".names.key.0123456789abcdef.part").hardlink_to(tmp_path / "names.key")
    origins._own_key.cache_clear()
    assert keyed_name("digest") == name
    assert [path.name for path in tmp_path.iterdir()] == ["names.key"]
    assert stat.S_IMODE((tmp_path / "names.key").stat().st_mode) == 0o600
