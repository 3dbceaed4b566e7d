"""What every fuzzed case must do: succeed, or be refused in one sentence that quotes no secret.

A case is a function of a seeded generator and an empty folder. Whatever else than a `CapeletError`
it raises, whatever secret a message quotes, and whatever does not end, is a failure of ours. The
failures of all cases are gathered, so that one run shows each of them once.
"""

from __future__ import annotations

import random
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capelet.cli import app
from capelet.errors import CapeletError
from terminal import CliRunner

Case = Callable[[random.Random, Path], None]

# Stands in every text, name and number that is anybody's; digits of it in numbers.
SECRET, DIGITS = "zq", "73407340"
# Most cases take a hundredth of a second. What works for a minute of the processor's time, or waits
# for ten of the clock's, does not end; how fast or busy the machine is decides neither.
WORK_SECONDS, WAIT_SECONDS = 60.0, 600.0


class SpillError(AssertionError):
    """A message quotes a planted secret."""


class HangError(BaseException):
    """The alarm rang; no `except Exception` on the way may catch it."""


@dataclass
class Tally:
    """How many cases ended in which way, and what failed."""

    successes: int = 0
    refusals: int = 0
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        return self.successes + self.refusals + len(self.failures)


def run_cases(case: Case, count: int, seed: int, folder: Path) -> Tally:
    """Run the case with `count` seeds, each in a folder of its own."""
    tally = Tally()
    for number in range(count):
        name = f"{case.__name__}-{seed + number}"
        place = folder / name
        place.mkdir()
        try:
            with alarm(), warnings.catch_warnings():
                # A warning would print a line of code; overflow in numpy is one.
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", DeprecationWarning)
                case(random.Random(seed + number), place)
            tally.successes += 1
        except CapeletError as error:
            tally.refusals += 1
            for sentence in map(error.spell, ("python", "terminal", "page")):
                if spills(sentence):
                    tally.failures[name] = f"spilt: {sentence}"
        except (Exception, HangError) as error:
            last = traceback.format_exception(error, limit=-4)
            tally.failures[name] = "".join(last)
        shutil.rmtree(place, ignore_errors=True)
    return tally


def call(*arguments: object) -> None:
    """Run a command: exit codes 0 to 3, no traceback, no secret on the terminal."""
    result = CliRunner().invoke(app, [str(item) for item in arguments])
    output = result.stdout + result.stderr
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code not in (0, 1, 2, 3):
        raise AssertionError(f"exit {result.exit_code}: {arguments}: {output}")
    if result.exit_code and spills(output):
        raise SpillError(output)
    if result.exit_code:
        raise CapeletError("refused")


def spills(text: str) -> bool:
    return SECRET in text.lower() or DIGITS in text


@contextmanager
def alarm(work: float = WORK_SECONDS, wait: float = WAIT_SECONDS) -> Iterator[None]:
    """Ring when this process has worked so long, or when so much time has gone by."""

    def ring(number: int, frame: Any) -> None:
        raise HangError("endless work" if number == signal.SIGPROF else "endless waiting")

    timers = {
        signal.SIGPROF: (signal.ITIMER_PROF, work),
        signal.SIGALRM: (signal.ITIMER_REAL, wait),
    }
    before = {number: signal.signal(number, ring) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
