"""The tutorial on private encoders runs, on fewer texts, and the card names every method."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import capelet
from capelet.cli import app
from capelet.data.datasets import is_available
from capelet.defences import METHODS
from capelet.findings import Findings
from terminal import CliRunner

DOCS = Path(__file__).parents[1] / "docs"
TUTORIAL = DOCS / "tutorials/protect-news.md"
OTHERS = (
    "Tuned layers",
    "Trained with differential privacy",
    "General-purpose protection",
    "Held-out attributes",
    "As the papers have them",
    "Sources",
)
"""Sections of the card that are about no single method."""
FOLDERS = {"before": "runs/before", 8: "private/eight", 4: "private/four", 2: "private/two"}


def blocks() -> list[tuple[str, str]]:
    text = TUTORIAL.read_text("utf-8")
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def run(language: str, code: str) -> None:
    """One block, in this process: what takes long in a tutorial of eight commands is to begin."""
    if language == "python":
        exec(compile(code, TUTORIAL.name, "exec"), {})
    for line in code.splitlines() if language == "bash" else ():
        name, *words = shlex.split(line)
        done = CliRunner().invoke(app, words)
        assert name == "capelet" and done.exit_code == 0, f"{line}\n{done.output}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all blocks were run, in order, on fewer texts and by one attacker."""
    if not is_available("ag_entities"):
        pytest.skip("the set ag_entities is not here; CAPELET_DATA names the folder it lies in")
    place = tmp_path_factory.mktemp("news")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        for language, code in blocks():
            run(language, code.replace("[:4000]", "[:2700]").replace("logistic,kernel", "logistic"))
    return place


def test_the_size_can_be_made_small() -> None:
    assert sum(code.count("[:4000]") for _, code in blocks()) == 1
    assert sum(code.count("order[4000:]") for _, code in blocks()) == 1  # never among the first


def test_the_tutorial_finds_what_it_says(folder: Path) -> None:
    """Before, both persons leak strongly; after, little more than the topic tells."""
    seen = {
        key: {item.target: item for item in capelet.verdicts(Findings.load(folder / name))}
        for key, name in FOLDERS.items()
    }
    for target in ("first", "second"):
        raw = seen["before"][target]
        assert raw.level == "strong" and raw.value is not None and raw.value > 0.85
        for key in (8, 4, 2):
            now = seen[key][target]
            assert now.value is not None and now.value < raw.value - 0.15
            assert now.ceiling is not None


def test_the_tutorial_writes_what_it_says(folder: Path) -> None:
    for name in ("private/eight", "private/four", "private/two"):
        page = (folder / name / "report.html").read_text("utf-8")
        assert "not private towards the texts it was trained on" in page
        assert (folder / name / "before/findings.json").is_file()
    assert (folder / "vectors.parquet").is_file()


def test_the_card_has_a_section_for_every_method_and_no_other() -> None:
    card = (DOCS / "cards/defences.md").read_text("utf-8")
    titles = re.findall(r"^## (.+)$", card, re.MULTILINE)
    assert [title.strip("`") for title in titles if title not in OTHERS] == list(METHODS)
    assert re.findall(r"^\| `([^`]+)` \|", card, re.MULTILINE) == list(METHODS)
