"""Layers of a real MiniLM trained along with a map: through the same loop, for the same terms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capelet.data.datasets import load as load_set
from capelet.data.labels import Attribute, attribute
from capelet.defences import Settings, check_needs, fit
from capelet.defences.fitting import Part, Schedule
from capelet.encoders import load
from capelet.encoders.tuning import top_layers
from capelet.errors import CapeletError
from capelet.release import PrivateEncoder

QUICK = Settings(tune_layers=1, schedule=Schedule(epochs=3, device="cpu"))


@pytest.fixture(scope="module")
def part() -> Part:
    """96 reviews with their gender as the task, and a secret that is not in them."""
    whole = load_set("reviews")
    assert whole.texts is not None
    rows = np.arange(96)
    texts = [" ".join(str(text).split()[:12]) for text in whole.texts[:96]]
    task = attribute("gender", whole.private["gender"][:96])
    secret = Attribute("coin", np.random.default_rng(2).integers(0, 2, 96), ("no", "yes"))
    vectors = load("minilm", "torch").encode(texts)
    return Part(vectors, rows[16:], rows[:16], task, (secret,), texts)


def tuned(part: Part, name: str, settings: Settings = QUICK, pace: float = 0.05) -> Any:
    assert part.texts is not None
    top = top_layers(load("minilm", "torch"), part.texts, settings.tune_layers)
    top.pace = pace
    return fit(name, replace(part, top=top), settings)


@pytest.mark.parametrize("name", ["fx", "gr", "cape"])
def test_layers_are_trained_along_and_only_these(name: str, part: Part) -> None:
    from safetensors.numpy import load_file

    settings = replace(QUICK, epsilon=8.0) if name == "cape" else QUICK
    made = tuned(part, name, settings)
    plain = load_file(made.encoder.folder / "model.safetensors")
    whole = load("minilm", "torch").place()  # type: ignore[attr-defined]
    before = load_file(whole / "model.safetensors")
    moved = {key for key, held in before.items() if not np.array_equal(held, plain[key])}
    assert moved and all("encoder.layer.5." in key for key in moved)
    released = PrivateEncoder(made.encoder, *made.steps).release(part.texts).vectors
    assert released.shape == (96, 64) and np.isfinite(released).all()
    if name == "gr":
        assert set(made.outcome.joint) == {"coin"}


def test_layers_that_stand_still_are_the_encoder(part: Part) -> None:
    """The control: without a pace nothing is learnt by the layers, and the map is as it was."""
    assert part.texts is not None
    plain = load("minilm", "torch").encode(part.texts)
    still, made = tuned(part, "fx", pace=0.0), tuned(part, "fx")
    np.testing.assert_allclose(still.encoder.encode(part.texts), plain, atol=1e-6)
    assert np.abs(made.encoder.encode(part.texts) - plain).max() > 1e-3


def test_the_same_seed_gives_the_same_weights(part: Part) -> None:
    first, again = tuned(part, "fx"), tuned(part, "fx")
    weights = [
        {path.name: path.read_bytes() for path in item.encoder.folder.rglob("*.safetensors")}
        for item in (first, again)
    ]
    assert weights[0] and weights[0] == weights[1]
    assert first.outcome.map.digest == again.outcome.map.digest


def test_methods_that_cannot_tune_say_so(part: Part) -> None:
    for name, changed in (
        ("leace", QUICK),
        ("bottleneck", replace(QUICK, epsilon=8.0)),
        ("gr+", replace(QUICK, keep="neighbours")),
    ):
        with pytest.raises(CapeletError, match="leave tune_layers= out"):
            check_needs(name, changed, part.task, part.secrets)
