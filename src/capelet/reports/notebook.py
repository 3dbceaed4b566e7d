"""Findings where somebody looks at them in passing: cards in a notebook, a table under `print`.

The cards are a small piece of HTML that needs nothing else: it reaches into a page that is not
ours, so it brings no style sheet and no script, and every rule stands at its element. Names of
columns are escaped.
"""

from __future__ import annotations

from html import escape

from capelet.findings import Findings
from capelet.findings.verdicts import Figures
from capelet.reports.formatting import NOTHING, count, is_share, metric_name, percent, span
from capelet.reports.kinds import all_verdicts
from capelet.reports.kinds.utility import USE, judged_row
from capelet.reports.verdict import Verdict, targets

# As on the page: the stronger the leak, the warmer; grey where there is nothing to warn of.
_EDGES = {"strong": "#b3261e", "clear": "#c4570a", "slight": "#a07800"}
_CALM = "#5f6b7a"


def render_cards(findings: Findings) -> str:
    """One card for each verdict, and what was measured on how many rows."""
    cards = "".join(map(_card, all_verdicts(findings)))
    if not cards:
        cards = f"<p>{escape(repr(findings))}</p>"
    return f'<div style="font-family:system-ui,sans-serif;max-width:44rem">{cards}</div>'


def render_table(findings: Findings) -> str:
    """A line for each verdict and each score of a task, for a terminal."""
    lines = [("target", "score", "95 % interval", "without", "")]
    for verdict in all_verdicts(findings):
        lines.append((verdict.target, *_cells(verdict.figures), verdict.title))
    for row in (judged_row(findings, target) for target in targets(findings, USE)):
        if row is not None and is_share(row.metric):
            what = f"{metric_name(row.metric)} of the task"
            lines.append((row.target, *_cells(Figures.of(row, row.majority)), what))
    if len(lines) == 1:
        return repr(findings)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join([*rows, f"{count(len(findings))} rows in all; write_report draws the pages"])


def _cells(figures: Figures) -> tuple[str, str, str]:
    return (
        percent(figures.value, 1),
        span(figures.low, figures.high, 1) or NOTHING,
        percent(figures.base, 1),
    )


def _card(verdict: Verdict) -> str:
    edge = _EDGES.get(verdict.level, _CALM)
    return (
        f'<div style="border-left:4px solid {edge};padding:.4rem .8rem;margin:.5rem 0">'
        f"<strong>{escape(verdict.target)}</strong> "
        f'<span style="color:{edge}">{escape(verdict.title)}</span><br>'
        f"{escape(verdict.sentence)}</div>"
    )
