"""Models side by side: every row keeps its value and gets the name of its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capelet.cli import app
from capelet.errors import DataError
from capelet.findings import Finding, Findings
from capelet.reports.language import language_tables, model_sentences
from capelet.workflows.language import compare_models
from terminal import CliRunner


def run(method: str, bits: float, canaries: int = 6, texts: int = 90) -> Findings:
    """What an attack on a model of this method would have written."""
    about: dict[str, Any] = {"repetitions": 20}
    rows = (
        Finding("extraction", "canaries", "exposure_bits", bits, bits - 1, bits + 1, chance=1.4,
                n=6, parameters=about),
        Finding("membership", "texts", "auc", 0.6, 0.55, 0.65, chance=0.5, attacker="loss", n=90),
        Finding("utility", "next word", "perplexity", 40 + bits, n=30),
    )  # fmt: skip
    origin = {
        "data": {"samples": texts},
        "canaries": canaries,
        "guarantee": {"sentence": "no guarantee" if method == "none" else "8-central"},
    }
    return Findings(rows, origin, {"method": {"name": method}}, {})


def test_rows_keep_their_values_and_get_a_name() -> None:
    plain, private = run("none", 30.0), run("dpsgd", 2.0)
    both = compare_models([("a", plain), ("b", private)])
    assert len(both.rows) == 6 and both.provenance["warnings"] == []
    for method, one in (("none", plain), ("dpsgd", private)):
        rows = [row for row in both if row.parameters["method"] == method]
        assert [row.value for row in rows] == [row.value for row in one]
    sentences = " ".join(model_sentences(both))
    assert "No privacy: test perplexity 70.0, exposure of a secret repeated 20 times 30.0 bits" in (
        sentences
    )
    assert "DP-SGD promises: 8-central." in sentences
    assert "DP-SGD: whether a text was trained on is told by its loss" in sentences
    tables = {item.title: item for item in language_tables(both)}
    assert "texts, DP-SGD" in {line.cells[0] for line in tables["Other attacks"].lines}


def test_equal_methods_are_called_by_their_folders() -> None:
    both = compare_models([("small", run("triplet", 9.0)), ("large", run("triplet", 12.0))])
    assert {row.parameters["method"] for row in both} == {"small", "large"}
    with pytest.raises(DataError, match="two runs are called 'same'"):
        compare_models([("same", run("triplet", 9.0)), ("same", run("triplet", 12.0))])


def test_what_cannot_be_compared_is_refused_or_said() -> None:
    with pytest.raises(DataError, match="two runs or more; found 1"):
        compare_models([("a", run("none", 9.0))])
    other = replace(run("none", 9.0), rows=(Finding("attribute-inference", "a", "auc", 0.5),))
    with pytest.raises(DataError, match="'b' holds no findings on a language model"):
        compare_models([("a", run("none", 9.0)), ("b", other)])
    unlike = compare_models([("a", run("none", 9.0)), ("b", run("dpsgd", 2.0, 8, 70))])
    assert unlike.provenance["warnings"] == [
        "dpsgd was trained on other texts than none",
        "dpsgd holds another number of canaries than none",
    ]


def test_the_command_writes_a_page_and_spares_its_runs(tmp_path: Path) -> None:
    folders = [run(name, bits).save(tmp_path / name) for name, bits in (("none", 30), ("dpsgd", 2))]
    words = ["lm", "compare", *map(str, folders)]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "both")])
    assert done.exit_code == 0, done.stderr
    assert "DP-SGD: test perplexity 42.0" in done.stdout
    page = (tmp_path / "both" / "report.md").read_text("utf-8")
    assert "no privacy" in page and "DP-SGD" in page
    again = CliRunner().invoke(app, [*words, "--out", str(folders[0])])
    assert again.exit_code == 2 and "whose findings would be lost" in again.stderr
    missing = CliRunner().invoke(
        app, ["lm", "compare", str(tmp_path / "x"), str(folders[0]), "--out", str(tmp_path / "y")]
    )
    assert missing.exit_code == 2 and not (tmp_path / "y").exists()
