"""What a user of the command line sees besides results: sentences, bars, and the command itself."""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from capelet.cli import INTERRUPTED
from capelet.errors import CapeletError, describe_fault

if TYPE_CHECKING:
    from capelet.findings import Findings
    from capelet.interfaces import Progress
    from capelet.release import PrivateEncoder
    from capelet.reports import Verdict

# Faster work needs no bar: it would only flicker.
PATIENCE_SECONDS = 2.0


# sysexits.h: an internal software error.
OUR_FAULT = 70
# A full, read-only, broken or forbidden disk.
_DISK = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.ENAMETOOLONG,
}
TRACEBACK = "CAPELET_TRACEBACK"


# Characters that are written and not seen: escapes that repaint a terminal, marks that turn the
# direction of what follows. A column's name may hold them, and anybody may have named it.
_UNSEEN = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def echo(line: object, file: TextIO | None = None) -> None:
    """Print a line for people, or for machines, without control characters."""
    print(_UNSEEN.sub("", str(line)), file=file)


def guard(command: Callable[..., None]) -> Callable[..., None]:
    """Bad input ends with one sentence and exit code 2, a fault of ours with 70; no traceback."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except CapeletError as error:
            echo(f"capelet: {error.spell('terminal')}", file=sys.stderr)
            raise SystemExit(2) from None
        except KeyboardInterrupt:
            echo(
                "capelet: stopped; every file is as it was or whole; run it again", file=sys.stderr
            )
            raise SystemExit(INTERRUPTED) from None
        # Whoever closed a pipe, as `head` does, has seen enough.
        except BrokenPipeError:
            raise SystemExit(0) from None
        except Exception as error:
            if (sentence := _trouble_of_the_machine(error)) is not None:
                echo(f"capelet: {sentence}", file=sys.stderr)
                raise SystemExit(2) from None
            _print_fault(error)
            raise SystemExit(OUR_FAULT) from None

    return run


def _trouble_of_the_machine(error: Exception) -> str | None:
    """What to say where the disk or the memory gave out, which is nobody's fault; None else."""
    if isinstance(error, MemoryError):
        return "the memory is not enough for this; take fewer rows, or smaller sizes"
    if isinstance(error, OSError) and error.errno in _DISK:
        place = f" {str(error.filename)!r}" if error.filename else ""
        return f"cannot write or read{place} ({error.strerror}); make room, or choose another place"
    return None


def _print_fault(error: Exception) -> None:
    """Say that the fault is ours and where it is, without the message: it may quote a text."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)
    echo(
        f"capelet: a fault of Capelet, not of your data: {describe_fault(error)}. Please "
        "report this line with the command and the version (capelet --version). "
        f"{TRACEBACK}=1 shows where it happened in full; read that before you send it, since it "
        "may quote your texts",
        file=sys.stderr,
    )


def print_leaves(leaves: str) -> None:
    """What leaves of each text, before any verdict on it; nothing where nothing is known of it."""
    if leaves:
        echo(f"what leaves: {leaves}")


def print_verdicts(verdicts: Iterable[Verdict], before: str = "") -> None:
    """A line for each verdict, with the label that the page has."""
    for item in verdicts:
        echo(f"{before}[{item.title}] {item.sentence}")


def verdict_summaries(verdicts: Iterable[Verdict]) -> list[dict[str, Any]]:
    """The verdicts for machines."""
    return [
        {
            "target": item.target,
            "verdict": str(item.outcome),
            "level": item.level,
            "sentence": item.sentence,
            "counted": item.counted,
            "people": item.people,
            "people_needed": item.people_needed,
        }
        for item in verdicts
    ]


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Progress]:
    """A bar on standard error for each kind of long work, shown once it takes two seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    # Standard output belongs to results, which may be piped.
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:>10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    bars = Bars(*columns, console=console, disable=quiet or not console.is_terminal)
    tasks: dict[str, Any] = {}
    start = time.monotonic()

    def progress(what: str, count: int, total: int) -> None:
        if what not in tasks:
            # Work that is over at its first report, or has just begun, needs no bar.
            if count >= total or (time.monotonic() - start < PATIENCE_SECONDS and count == 0):
                return
            tasks[what] = bars.add_task(what, total=total)
        bars.update(tasks[what], completed=count, total=total)

    with bars:
        yield progress


def with_command(findings: Findings, provenance: dict[str, Any] | None = None) -> Findings:
    """The findings, with the command that made them in their provenance."""
    origin = findings.provenance if provenance is None else provenance
    command = shlex.join(["capelet", *sys.argv[1:]])
    return replace(findings, provenance={**origin, "command": command})


def report_findings(
    findings: Findings,
    folder: Path,
    as_json: bool,
    *,
    summarise: Callable[[Findings, Path], Any],
    show: Callable[[Findings, Path], None],
) -> None:
    """Write the report of findings, then say what is in it: as JSON, or in lines for people."""
    from capelet.reports import write_report

    page = write_report(findings, folder)
    if as_json:
        print_json(summarise(findings, page))
    else:
        show(findings, page)


def print_trained(encoder: PrivateEncoder, trained: Any, consequence: str) -> None:
    """How many rows trained the encoder: on the terminal, and nowhere in what is written.

    The number itself is about membership, so it may not stand in the metadata of a released file.
    """
    from capelet.privacy.origins import unrecorded

    ids = [origin.id for origin in encoder.origins]
    if (count := int(trained.sum())) > 0:
        rows = f"{count:,} of {len(trained):,} rows"
        echo(f"capelet: {rows} trained this encoder; {consequence}", file=sys.stderr)
    if unrecorded(ids):
        echo(
            "capelet: which rows trained this encoder is not recorded here: keep texts that it may "
            "have seen apart yourself",
            file=sys.stderr,
        )


def answer(as_json: bool, summary: Any, *lines: object) -> None:
    """What a command has to say: the summary for machines, or the lines for people."""
    if as_json:
        print_json(summary)
        return
    for line in lines:
        echo(line)


def print_json(summary: Any) -> None:
    """One line for machines, with ε as ε where the stream can hold it, and valid JSON anywhere."""
    line = _UNSEEN.sub("", json.dumps(summary, ensure_ascii=False))
    try:
        line.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        line = json.dumps(summary)
    echo(line)
