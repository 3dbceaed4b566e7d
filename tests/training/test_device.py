"""One choice of a device: what is not there is said, and random numbers come back afterwards."""

from __future__ import annotations

import pytest
import torch

from capelet.errors import CapeletError
from capelet.training.device import (
    choose,
    generators,
    gpu_available,
    half_precision,
    on_processor,
    seeded_fork,
)


def test_auto_takes_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, kind in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert choose("auto").type == choose(None).type == kind
        assert choose("cpu").type == "cpu"


def test_a_study_has_no_gpu_unless_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with on_processor():
        assert choose("auto").type == choose(None).type == "cpu" and not gpu_available()
        assert choose("cuda").type == "cuda"
    assert choose("auto").type == "cuda" and gpu_available()


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CapeletError, match='there is no GPU on this machine; use device="cpu"'):
        choose("cuda")
    with pytest.raises(CapeletError, match="no device 'gpu'; give auto, cpu or cuda"):
        choose("gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert str(choose("cuda:0")) == "cuda:0"  # the control


def test_a_seed_decides_inside_and_nothing_outside() -> None:
    torch.manual_seed(5)
    plain = torch.rand(2)
    torch.manual_seed(5)
    first = torch.rand(1)
    with seeded_fork(7):
        inside = torch.rand(3)
    second = torch.rand(1)
    assert torch.equal(torch.cat([first, second]), plain)
    with seeded_fork(7, torch.device("cpu")):
        assert torch.equal(torch.rand(3), inside)
    with seeded_fork(8):
        assert not torch.equal(torch.rand(3), inside)


def test_a_processor_keeps_its_precision() -> None:
    cpu = torch.device("cpu")
    with half_precision(cpu):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def test_the_random_numbers_of_torch_can_be_put_back() -> None:
    (stream,) = generators(torch.device("cpu")).values()
    state = stream.get_state()
    numbers = torch.rand(4)
    stream.set_state(state)
    assert torch.equal(torch.rand(4), numbers)
