"""`capelet keys`: a secret is printed once, and no command prints it or a password again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capelet.cli import app
from capelet.ledger.store import Ledger
from terminal import CliRunner


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(item) for item in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_keys_are_made_listed_and_revoked(place: Path | str) -> None:
    store = ("--ledger", place)
    code, output, _ = call("keys", "add", *store, "--label", "search team")
    name, secret, *_ = output.splitlines()
    assert code == 0 and name.startswith("key-") and "not shown again" in output
    bound = call(
        "keys", "add", *store, "--label", "a", "--subject", "Ann Lee", "--operator", "--json"
    )
    second = json.loads(bound[1])
    assert second["subject"] == "Ann Lee" and second["is_operator"]
    with Ledger(place) as ledger:
        assert ledger.keys.find(secret) is not None
        assert ledger.keys.find(second["secret"]) is not None
    code, output, _ = call("keys", "list", *store)
    assert code == 0 and "search team" in output and "operator" in output and "person-" in output
    code, revocation, _ = call("keys", "revoke", name, *store)
    assert code == 0 and revocation == f"revoked: {name} (search team)\n"
    everything = output + revocation + call("keys", "list", *store, "--json")[1]
    for private in (secret, second["secret"], "Ann"):
        assert private not in everything
    with Ledger(place) as ledger:
        assert ledger.keys.find(secret) is None
    code, _, error = call("keys", "revoke", "key-0", *store)
    assert code == 2 and "there is no key 'key-0'" in error


@pytest.mark.parametrize("act", [("list",), ("revoke", "key-0")])
def test_no_store_is_made_by_asking(tmp_path: Path, act: tuple[str, ...]) -> None:
    code, _, error = call("keys", *act, "--ledger", tmp_path / "no.db")
    assert code == 2 and "there is no ledger" in error and not (tmp_path / "no.db").exists()


@pytest.mark.parametrize(
    "act",
    [
        ("keys", "list", "--ledger", "URL"),
        ("keys", "add", "--label", "a", "--ledger", "URL"),
        ("keys", "revoke", "key-0", "--ledger", "URL"),
        ("budgets", "show", "URL"),
        ("budgets", "raise", "URL", "--to", "3"),
        ("budgets", "erase", "URL", "--person", "ann"),
        ("budgets", "backup", "URL", "copy.db"),
        ("budgets", "restore", "no.db", "URL"),
        ("budgets", "rotate", "URL", "--to", "k"),
    ],
)
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@127.0.0.1:1/people",
        "postgresql://ann:hunter2@127.0.0.1:port/people",
        "postgresql://ann:hun ter2@127.0.0.1:1/people?nonsense=hunter2",
    ],
)
def test_no_command_prints_a_password(
    act: tuple[str, ...], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    code, output, error = call(*(url if part == "URL" else part for part in act))
    assert code == 2 and error.startswith("capelet: ") and "Traceback" not in error
    assert "hun" not in output + error and "ter2" not in output + error
    assert list(tmp_path.iterdir()) == []
