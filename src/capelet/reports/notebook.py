"""Findings in a notebook: verdict cards as a small piece of HTML that needs nothing else.

It reaches into a page that is not ours, so it brings no style sheet and no script: every rule
stands at its element. Names of columns are escaped.
"""

from __future__ import annotations

from html import escape

from capelet.findings import Findings
from capelet.reports.kinds import all_verdicts
from capelet.reports.verdict import Verdict

# As on the page: the stronger the leak, the warmer; grey where there is nothing to warn of.
_EDGES = {"strong": "#b3261e", "clear": "#c4570a", "slight": "#a07800"}
_CALM = "#5f6b7a"


def render_cards(findings: Findings) -> str:
    """One card for each verdict, and what was measured on how many rows."""
    cards = "".join(map(_card, all_verdicts(findings)))
    if not cards:
        cards = f"<p>{escape(repr(findings))}</p>"
    return f'<div style="font-family:system-ui,sans-serif;max-width:44rem">{cards}</div>'


def _card(verdict: Verdict) -> str:
    edge = _EDGES.get(verdict.level, _CALM)
    return (
        f'<div style="border-left:4px solid {edge};padding:.4rem .8rem;margin:.5rem 0">'
        f"<strong>{escape(verdict.target)}</strong> "
        f'<span style="color:{edge}">{escape(verdict.title)}</span><br>'
        f"{escape(verdict.sentence)}</div>"
    )
