"""A use decides the method, what it keeps and why; no use names a method that cannot serve it."""

from __future__ import annotations

import pytest

from capelet.defences import METHODS, USES, Settings, propose
from capelet.errors import CapeletError


@pytest.mark.parametrize("use", USES)
def test_every_use_has_a_method_that_keeps_what_it_needs(use: str) -> None:
    proposal = propose(use)
    record = METHODS[proposal.method]
    assert proposal.settings.keep in record.keeps
    assert proposal.reason and proposal.reason == USES[use].reason


def test_a_task_gets_noise_and_search_is_told_how_little_is_hidden() -> None:
    assert METHODS[propose("task").method].noise == "vectors"
    assert METHODS[propose("texts").method].noise == "words"
    search = propose("search")
    assert METHODS[search.method].noise == "none" and search.settings.keep == "neighbours"
    assert "hides little and guarantees nothing" in search.reason


def test_other_settings_stay() -> None:
    assert propose("task", Settings(epsilon=2.0, keep="auto")).settings == Settings(epsilon=2.0)


def test_an_unknown_use_is_refused() -> None:
    with pytest.raises(CapeletError, match="there is no use 'serach'; did you mean 'search'"):
        propose("serach")
