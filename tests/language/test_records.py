"""The owner's record lies outside the folder, and no id of a folder leads elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from capelet.language.records import Record, digest_of


def test_a_record_is_found_by_its_id_and_by_its_owner_only(
    own_state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record = Record(digest_of(["a text"]), {"test_perplexity": 7.5}, ("ann", "bob"))
    path = record.keep()
    assert path.is_relative_to(own_state) and path.stat().st_mode & 0o077 == 0
    assert Record.find(record.id) == record
    assert Record.find(Record("", {}).id) is None  # of another training
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path))
    assert Record.find(record.id) is None


@pytest.mark.parametrize("name", ["", "../secret", "A" * 32, "0" * 31])
def test_an_id_that_is_none_is_not_looked_for(own_state: Path, name: str) -> None:
    folder = own_state / "language"
    folder.mkdir(exist_ok=True)
    (own_state / "secret.json").write_text('{"digest": "", "figures": {}, "canary_authors": []}')
    (folder / f"{'A' * 32}.json").write_text((own_state / "secret.json").read_text())
    assert Record.find(name) is None


def test_a_broken_record_is_none(own_state: Path) -> None:
    record = Record("digest")
    record.keep().write_text("{")
    assert Record.find(record.id) is None


def test_ids_do_not_follow_from_the_texts() -> None:
    assert Record("same").id != Record("same").id


def test_a_record_takes_a_free_id_or_its_own_and_no_other() -> None:
    record, other = Record("digest", {"n": 1}, ("ann",)), Record("digest", {"n": 2}, ("ann",))
    free = Record("").id
    assert record.under(free).id == free  # named by a folder, and killed before it was kept
    record.keep()
    again = Record("digest", {"n": 1}, ("ann",))
    assert again.under(record.id) == record  # killed after that
    assert other.under(record.id) == other  # another training, whose model may be elsewhere
    assert record.under("../secret") == record and record.under("") == record
