"""`capelet report`: the report of a run again, or of two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from capelet.cli.doors import Json
from capelet.cli.terminal import answer


def report(
    run: Annotated[
        Path, "A folder that `audit`, `protect`, `invert`, `membership` or `lm attack` wrote."
    ],
    other: Annotated[Path | None, "A second one, to compare with."] = None,
    /,
    *,
    out: Annotated[Path | None, "Where to write; the (second) run itself."] = None,
    json: Json = False,
) -> None:
    """Write the report of a run again, or of two runs side by side.

    Findings are of the kinds {kinds of finding}, by the metrics {metrics}
    and the measures {other measures}.

    Example: `capelet report runs/before runs/after --out runs/compared`
    """
    from capelet.files import check_writable
    from capelet.findings import Findings
    from capelet.reports import drawn_from, write_comparison, write_protection, write_report

    first = Findings.load(run)
    second = Findings.load(other) if other is not None else None
    folder = out or other or run
    check_writable(folder)
    with drawn_from(run):
        if second is not None:
            page = write_comparison(first, second, folder)
        elif "protect" in first.provenance and (run / "before").is_dir():
            page = write_protection(Findings.load(run / "before"), first, folder)
        else:
            page = write_report(first, folder)
    answer(json, {"report": str(page)}, f"report: {page}")
