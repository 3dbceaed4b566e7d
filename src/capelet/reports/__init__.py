"""Reports: findings as one self-contained page, as Markdown, and as verdicts in plain words.

A report is a pure function of `Findings`: it arranges, rounds and says, and never computes.
"""

from capelet.reports.attacks import all_verdicts
from capelet.reports.markdown import render_markdown
from capelet.reports.protection import write_protection
from capelet.reports.render import render_html, write_comparison, write_report
from capelet.reports.verdicts import Verdict, overall, verdicts

__all__ = [
    "Verdict",
    "all_verdicts",
    "overall",
    "render_html",
    "render_markdown",
    "verdicts",
    "write_comparison",
    "write_protection",
    "write_report",
]
