"""Who was strongest and what it held, in words."""

from __future__ import annotations

from capelet.findings import Finding
from capelet.reports.kinds.families import winner_sentence


def strongest(**parameters: object) -> Finding:
    return Finding(
        "attribute-inference", "gender", "balanced_accuracy", 0.9, attacker="strongest",
        parameters=parameters,
    )  # fmt: skip


def test_an_insider_that_won_is_named_with_what_it_held() -> None:
    sentence = winner_sentence(strongest(chosen={"undo": 3, "knn": 2}, holds="the folder"))
    assert "undo" in sentence and "held the folder of the private encoder" in sentence


def test_an_attacker_of_vectors_needs_no_sentence_and_old_runs_have_none() -> None:
    assert winner_sentence(strongest(chosen={"knn": 5}, holds="vectors")) == ""
    assert winner_sentence(strongest(chosen={"knn": 5})) == ""
