"""Plans that are small enough for a test, on texts that are made here."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capelet.studies.plan import StudyPlan

WORDS = {
    "weather": ("sun", "rain", "wind"),
    "sport": ("ball", "goal", "team"),
    "f": ("red", "blue"),
    "m": ("green", "pink"),
}


@pytest.fixture(scope="session")
def tiny_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 texts with a topic and a gender, both of which stand in the words."""
    path = tmp_path_factory.mktemp("texts") / "tiny.csv"
    chance = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["text", "topic", "gender"])
        for row in range(200):
            topic, gender = chance.choice(["weather", "sport"]), chance.choice(["f", "m"])
            words = [chance.choice(WORDS[topic]) for _ in range(3)] + [
                chance.choice(WORDS[gender]),
                f"number{row}",
            ]
            chance.shuffle(words)
            table.writerow([" ".join(words), topic, gender])
    return path


@pytest.fixture
def document(tiny_texts: Path) -> Callable[..., dict[str, Any]]:
    """A plan as a mapping; arguments replace its parts."""

    def make(**parts: Any) -> dict[str, Any]:
        columns = {"text": "text", "label": "topic", "private": ["gender"]}
        plan: dict[str, Any] = {
            "name": "tiny",
            "kind": "protect",
            "settings": {"encoder": "wordllama", "attackers": ["logistic"], "epochs": 1},
            "axes": {"corpus": ["tiny"], "seed": [0], "method": ["leace"]},
            "corpora": {"tiny": {"file": str(tiny_texts), **columns}},
        }
        return {**plan, **parts}

    return make


@pytest.fixture
def plan(document: Callable[..., dict[str, Any]]) -> Callable[..., StudyPlan]:
    def make(**parts: Any) -> StudyPlan:
        return StudyPlan.of(document(**parts))

    return make
