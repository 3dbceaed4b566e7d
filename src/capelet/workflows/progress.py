"""Progress for whoever calls from Python: one line that renews itself, in a terminal or a notebook.

Nothing is written where nobody looks: a script whose standard error goes to a file stays silent.
"""

from __future__ import annotations

import sys
import time

from capelet.interfaces import Progress, silent

# Faster work needs no line: it would only flicker.
PATIENCE_SECONDS = 2.0
_BETWEEN_SECONDS = 0.2


class ProgressLine:
    """`encoding 640 of 10,000`, on standard error; gone when the work is over."""

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        self._start = time.monotonic()
        self._patience = patience
        self._last = 0.0
        self._width = 0

    def __call__(self, what: str, count: int, total: int, /) -> None:
        now = time.monotonic()
        is_over = count >= total
        if now - self._start < self._patience or (
            not is_over and now - self._last < _BETWEEN_SECONDS
        ):
            return
        self._last = now
        line = "" if is_over else f"{what} {count:,} of {total:,}"
        # Blanks over the rest of the longer line before; notebooks know no other way to clear it.
        print("\r" + line.ljust(self._width) + "\r" * is_over, end="", file=sys.stderr, flush=True)
        self._width = len(line)


def default_progress(progress: Progress | None) -> Progress:
    """What the caller gave, or a line where somebody would see it."""
    if progress is not None:
        return progress
    return ProgressLine() if sys.stderr.isatty() or in_notebook() else silent


def in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter; IPython is never imported for it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
