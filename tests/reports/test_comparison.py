"""Two runs of language models side by side: exposure, its control, and the right direction."""

from __future__ import annotations

import re
from html import unescape

import pytest

from capelet.findings import Finding, Findings
from capelet.findings.kinds import KINDS, Kind
from capelet.reports import render_html, render_markdown
from capelet.reports.comparison import all_changes, change_summary


def model(bits: float, perplexity: float, method: str | None = None) -> Findings:
    """A model that remembers secrets of 50 repetitions with so many bits."""
    about = {"method": method} if method else {}
    rows = [
        Finding(
            "extraction" if level else "extraction-null",
            "canaries",
            "exposure_bits",
            value,
            value - 1,
            value + 1,
            chance=1.44,
            attacker="exposure",
            subgroup=f"repetitions={level}",
            parameters={"repetitions": level, **about},
        )
        for level, value in ((0, 1.5), (1, 3.0), (50, bits))
    ]
    ends = (perplexity - 4, perplexity + 4)
    rows.append(Finding("utility", "next word", "perplexity", perplexity, *ends, parameters=about))
    return Findings(tuple(rows), recipe={"network": "lstm"})


def words(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).replace("\u00a0", " ").split())


REMEMBERS, FORGETS = model(31.0, 90.0), model(4.0, 120.0)


def test_less_exposure_is_better_and_more_perplexity_is_worse() -> None:
    ways = {change.target: change.way for change in all_changes(REMEMBERS, FORGETS)}
    assert ways == {
        "secrets inserted once": "unclear",
        "secrets repeated 50 times": "better",
        "next word": "worse",
    }
    back = {change.target: change.way for change in all_changes(FORGETS, REMEMBERS)}
    assert back["secrets repeated 50 times"] == "worse" and back["next word"] == "better"
    summary = change_summary(REMEMBERS, FORGETS)
    assert "“secrets repeated 50 times” leaked less" in summary
    assert "the task “next word” lost" in summary


def test_exposure_stands_in_both_files_per_repetition_with_its_control() -> None:
    page, text = render_html(REMEMBERS, FORGETS), render_markdown(REMEMBERS, FORGETS)
    seen = words(page)
    assert "never (control) 1.5 0.5–2.5 1.5 0.5–2.5" in seen
    assert "secrets repeated 50 times 31.0 30.0–32.0 4.0 3.0–5.0 −27.0 apart" in seen
    assert "perplexity rises from 90.0 to 120.0 (30.0)" in seen
    assert page.count("<polyline") == 2
    assert "More is better" not in seen and "More is better" not in text
    table = text[text.index("**Exposure of canaries, bits**") :]
    assert "| *never (control)* | 1.5 (0.5–2.5) |" in table
    assert "Less is better." in table[: table.index("**Utility: perplexity**")]
    assert "Less is better." in table[table.index("**Utility: perplexity**") :]


def test_methods_are_compared_with_themselves() -> None:
    both = [
        Findings((*model(31.0, 90.0, "none").rows, *model(bits, 95.0, "triplet").rows))
        for bits in (20.0, 3.0)
    ]
    ways = {change.target: change.way for change in all_changes(*both)}
    assert ways["secrets repeated 50 times, triplet"] == "better"
    assert ways["secrets repeated 50 times, no privacy"] == "unclear"


@pytest.mark.parametrize(
    ("sense", "way", "note"),
    [("leak", "better", "Less is better."), ("use", "worse", "More is better.")],
)
def test_a_kind_with_nothing_but_a_record_is_on_every_page(
    monkeypatch: pytest.MonkeyPatch, sense: str, way: str, note: str
) -> None:
    kind = Kind("gossip", "Gossip", "accuracy", sense, "what a cat tells", subject="rumours")  # type: ignore[arg-type]
    monkeypatch.setitem(KINDS, "gossip", kind)

    def run(value: float) -> Findings:
        ends = (value - 0.02, value + 0.02)
        row = Finding("gossip", "rumours", "accuracy", value, *ends, chance=0.5, attacker="cat")
        null = Finding("gossip-null", "rumours", "accuracy", 0.51, 0.48, 0.52, attacker="cat")
        return Findings((row, null))

    page, text = render_html(run(0.8)), render_markdown(run(0.8))
    assert 'id="gossip"' in page and "## Gossip" in text
    assert "| rumours | cat | accuracy | 80.0 % (78.0–82.0) | 50.0 % |" in text
    assert "| *rumours (shuffled labels)* | cat | accuracy | 51.0 % (48.0–52.0) |" in text
    assert ("strong leak" in page) is (sense == "leak")
    (change,) = all_changes(run(0.8), run(0.6))
    assert change.way == way and "accuracy falls from 80.0 % to 60.0 %" in change.sentence
    both = render_markdown(run(0.8), run(0.6))
    assert "| rumours (cat) | 80.0 % (78.0–82.0) | 60.0 % (58.0–62.0) | −20.0 | apart |" in both
    assert note in both


def test_a_kind_without_a_record_is_shown_and_not_judged() -> None:
    rows = Findings((Finding("gossip", "rumours", "accuracy", 0.8, 0.78, 0.82, attacker="cat"),))
    page = render_html(rows)
    assert 'id="gossip"' not in page and "80.0 %" in page and "Gossip" in page
    assert all_changes(rows, rows) == []
