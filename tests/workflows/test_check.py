"""The check: right about the columns, sure of its command, and silent about cells."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.cli import app
from capelet.data.datasets import load
from capelet.data.labels import attribute
from capelet.workflows.check import Roles, check, half_width

NAMES = ["Was denken Sie, ganz ehrlich?", "Bewertung (1-5)", 'Geschlecht "laut Profil"']
NAMES += ["Alter; Gruppe", "Nutzer Name", "Nummer"]


def survey(path: Path, **form: Any) -> Path:
    """900 rows: a class of one row, empty texts, names with blanks, commas and quotes."""
    corpus = load("reviews")
    assert corpus.texts is not None and corpus.label is not None and corpus.author is not None
    with path.open("w", newline="", encoding=form.pop("encoding", "latin-1")) as stream:
        writer = csv.writer(stream, **{"delimiter": ";", **form})
        writer.writerow(NAMES)
        for row in range(900):
            text = "" if row % 75 == 0 else f"{corpus.texts[row]} Schöne Grüße"
            gender = "divers" if row == 7 else corpus.private["gender"][row]
            cells = [text, corpus.label[row], gender, corpus.private["age_group"][row]]
            writer.writerow([*cells, corpus.author[row], f"id{row}"])
    return path


def test_a_survey_as_it_comes(tmp_path: Path) -> None:
    result = check(survey(tmp_path / "umfrage.csv"))
    assert result.roles == Roles(NAMES[0], NAMES[1], (NAMES[2], NAMES[3]), NAMES[4])
    assert result.format == "CP1252, parted by semicolons"
    kinds = {column.name: column.kind for column in result.columns}
    assert kinds["Nummer"] == "identifiers" and kinds["Nutzer Name"] == "names"
    assert result.command is not None
    words = shlex.split(result.command)
    assert words.count("--private") == 2 and "--drop-empty" in words
    assert words[words.index("--merge-rare") + 1] == "20"
    assert words[words.index("--encoding") + 1] == "cp1252"
    assert words[words.index("--separator") + 1] == "semicolon"
    assert result.people == 131 and all(0.03 < half < 0.08 for _, half in result.precision)


def test_no_line_is_too_wide_and_no_cell_is_shown(tmp_path: Path) -> None:
    lines = check(survey(tmp_path / "umfrage.csv")).lines()
    assert max(len(line) for line in lines[:-1]) <= 80
    output = "\n".join(lines)
    corpus = load("reviews")
    assert corpus.author is not None
    for cell in ("divers", "female", "male", "Grüße", "id17", str(corpus.author[0])):
        assert cell not in output, cell


def test_the_command_works_when_it_is_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from terminal import CliRunner

    monkeypatch.chdir(tmp_path)
    survey(tmp_path / "umfrage.csv")
    shown = CliRunner().invoke(app, ["check", "umfrage.csv"])
    assert shown.exit_code == 0
    words = shlex.split(shown.stdout.strip().splitlines()[-1])
    fast = ["--encoder", "wordllama", "--seeds", "2", "--attackers", "logistic", "--no-cache"]
    result = CliRunner().invoke(app, [*words[1:], *fast])
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "runs/umfrage/report.html").is_file()
    assert "12 of 900 rows were left out" in result.stderr


def test_a_file_without_a_header_names_no_column(tmp_path: Path) -> None:
    whole = survey(tmp_path / "umfrage.csv").read_text("latin-1").splitlines(keepends=True)
    (tmp_path / "bare.csv").write_text("".join(whole[2:]), encoding="latin-1")
    result = check(tmp_path / "bare.csv")
    assert result.command is None and not result.names_shown
    assert "looks like a row" in str(result)
    first = next(csv.reader(whole[2:3], delimiter=";"))
    assert not any(cell and cell in str(result) for cell in (first[0], first[4], first[5]))
    assert not any(cell in str(result.to_json()) for cell in (first[0], first[4], first[5]))


def test_tables_in_memory_get_a_call_of_python() -> None:
    corpus = load("reviews")
    table = {"review": corpus.texts[:200], "gender": corpus.private["gender"][:200]}  # type: ignore[index]
    result = check(table)
    assert result.command == "capelet.audit(table, text='review', private=['gender'])"


def test_ready_vectors_and_nothing_to_ask(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = {"v": list(random.normal(size=(80, 4))), "id": [f"x{row}" for row in range(80)]}
    result = check(table)
    assert result.roles.vectors == "v" and result.columns[0].sentence() == "vectors of 4 numbers"
    assert "No column looks like texts" in str(check({"id": table["id"], "n": list(range(80))}))


def test_a_named_set_knows_its_columns() -> None:
    result = check("reviews")
    assert result.command == "capelet audit reviews --out runs/reviews"
    assert result.roles.author == "author" and len(result.precision) == 3


def test_half_width_is_that_of_independent_victims() -> None:
    """Against a simulation: balanced accuracy of guesses, averaged over five draws of victims."""
    random = np.random.default_rng(1)
    codes = np.array(["a"] * 600 + ["b"] * 300, dtype=object)
    scores = []
    for _ in range(400):
        hits = random.random(900) < 0.5
        parts = [random.permutation(900)[:180] for _ in range(5)]
        means = [
            np.mean([hits[part][codes[part] == name].mean() for name in "ab"]) for part in parts
        ]
        scores.append(np.mean(means))
    assert abs(1.96 * np.std(scores) / half_width(attribute("x", codes), 1.0) - 1) < 0.12
