"""Reports on disk: the page of one run, of two, or of a protection, as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from capelet.errors import OutputError
from capelet.files import writable_folder, write_whole
from capelet.findings import Findings
from capelet.reports.audit import audit_page
from capelet.reports.comparison import comparison_page
from capelet.reports.html import draw_html
from capelet.reports.language import is_of_language, language_page
from capelet.reports.markdown import draw_markdown
from capelet.reports.page import Page
from capelet.reports.protection import protection_page


def page_of(findings: Findings, other: Findings | None = None) -> Page:
    """The page that fits one run or, with `other`, two runs side by side."""
    if other is not None:
        return comparison_page(findings, other)
    return language_page(findings) if is_of_language(findings) else audit_page(findings)


def render_html(findings: Findings, other: Findings | None = None) -> str:
    """The page of one run or, with `other`, of two runs side by side."""
    return draw_html(page_of(findings, other))


def render_markdown(findings: Findings, other: Findings | None = None) -> str:
    """The Markdown of one run or, with `other`, of two runs side by side."""
    return draw_markdown(page_of(findings, other))


def write_report(findings: Findings, folder: Path) -> Path:
    """Write `findings.json`, `artefacts/`, `report.md` and `report.html`; the page's path."""
    # Drawn first: findings of which no page can be made overwrite nothing.
    page = page_of(findings)
    return _write(page, findings.save(folder), "report")


def write_comparison(first: Findings, second: Findings, folder: Path) -> Path:
    """Write `comparison.md` and `comparison.html` of two runs; the page's path."""
    return _write(page_of(first, second), writable_folder(folder), "comparison")


def write_protection(before: Findings, after: Findings, folder: Path | str) -> Path:
    """Write `report.md` and `report.html` on a private encoder; the page's path."""
    return _write(protection_page(before, after), writable_folder(folder), "report")


@contextmanager
def drawn_from(folder: Path) -> Iterator[None]:
    """One sentence where a page cannot be drawn from findings that were read from a folder.

    Their rows fit the schema, but what stands in the provenance and in artefacts is free, and
    anybody may have edited it. What Capelet has just measured is not drawn under this.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise OutputError(
            f"the findings in {str(folder)!r} are not as Capelet writes them "
            f"({type(error).__name__} while the page was drawn); run the command that made them "
            "again"
        ) from None


def _write(page: Page, folder: Path, name: str) -> Path:
    # What shows people's texts is for its owner only.
    mode = 0o600 if page.private else 0o644
    write_whole(folder / f"{name}.md", draw_markdown(page), mode=mode)
    path = folder / f"{name}.html"
    write_whole(path, draw_html(page), mode=mode)
    return path
