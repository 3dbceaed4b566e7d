"""Over two thousand hostile inputs, seeded: each succeeds or is refused, and none spills."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from capelet.errors import DataError
from fuzz import cases
from fuzz.oracle import SECRET, Case, HangError, alarm, run_cases

# Of each kind; what is cheap is tried more often.
COUNTS: dict[Case, int] = {
    cases.reader: 800,
    cases.options: 400,
    cases.recipe: 350,
    cases.private_folder: 250,
    cases.findings_file: 200,
    cases.interface: 300,
}
SEED = 20_260


def test_there_are_enough_cases() -> None:
    assert sum(COUNTS.values()) >= 2000


@pytest.mark.parametrize("case", COUNTS, ids=lambda case: case.__name__)
def test_no_input_breaks_or_spills(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing may be fetched, and nothing may be written elsewhere.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    tally = run_cases(case, COUNTS[case], SEED, tmp_path)
    shown = "\n".join(f"--- {name}\n{text}" for name, text in list(tally.failures.items())[:20])
    assert not tally.failures, f"{len(tally.failures)} of {COUNTS[case]} cases failed\n{shown}"
    # The control: a generator whose every input is refused, or passes, tries nothing.
    assert tally.successes >= COUNTS[case] // 50 and tally.refusals >= COUNTS[case] // 20
    assert not (tmp_path / "pwned").exists()


def test_the_oracle_sees_faults_spills_and_hangs(tmp_path: Path) -> None:
    def fault(*_: object) -> None:
        raise KeyError("a fault")

    def spill(*_: object) -> None:
        raise DataError(f"there is no {SECRET}")

    def refusal(*_: object) -> None:
        raise DataError("there is no such thing")

    tallies = [run_cases(case, 1, 0, tmp_path) for case in (fault, spill, refusal)]
    assert [len(tally.failures) for tally in tallies] == [1, 1, 0]
    with pytest.raises(HangError, match="waiting"), alarm(wait=0.1):
        threading.Event().wait()
    with pytest.raises(HangError, match="work"), alarm(work=0.1):
        while True:
            pass
