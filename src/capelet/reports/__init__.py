"""Reports: findings as one self-contained page, as Markdown, and as verdicts in plain words.

A report is a pure function of `Findings`: it arranges, rounds and says, and never computes.
"""

from capelet.reports.kinds import all_verdicts
from capelet.reports.kinds.attribute_inference import overall, verdicts
from capelet.reports.output_summary import what_leaves
from capelet.reports.verdict import Verdict
from capelet.reports.write import (
    drawn_from,
    render_html,
    render_markdown,
    write_comparison,
    write_protection,
    write_report,
)

__all__ = [
    "Verdict",
    "all_verdicts",
    "drawn_from",
    "overall",
    "render_html",
    "render_markdown",
    "verdicts",
    "what_leaves",
    "write_comparison",
    "write_protection",
    "write_report",
]
