"""Steps are checked for fit, noise carries its guarantee, a release says how it was made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from capelet.errors import CapeletError
from capelet.guarantees import NONE, Guarantee
from capelet.release import PrivateEncoder, recipe_hash


class Shift:
    """A vector step that moves everything by one; it adds no noise."""

    consumes = emits = "vectors"
    guarantee = None

    def describe(self) -> dict[str, Any]:
        return {"step": "shift"}

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return batch + 1


class Promise(Shift):
    guarantee = Guarantee(epsilon=2.0)

    def describe(self) -> dict[str, Any]:
        return {"step": "promise", "epsilon": 2.0}


def test_ready_vectors_pass_through() -> None:
    release = PrivateEncoder().release(np.eye(3))
    np.testing.assert_array_equal(release.vectors, np.eye(3))
    assert release.guarantee == NONE and release.recipe == {"steps": []}


def test_steps_run_in_order_and_describe_themselves() -> None:
    private = PrivateEncoder("wordllama", Shift(), Promise())
    texts = ["one text", "another text"]
    release = private.release(texts)
    plain = private.unprotected().release(texts)
    np.testing.assert_allclose(release.vectors, plain.vectors + 2)
    assert [step["step"] for step in release.recipe["steps"]] == ["encoder", "shift", "promise"]
    assert release.guarantee == Guarantee(epsilon=2.0) and plain.guarantee == NONE
    assert private.protects and not private.unprotected().protects
    assert release.recipe_hash == recipe_hash(private.recipe) != plain.recipe_hash


def test_noise_upon_noise_keeps_the_strongest_promise() -> None:
    """Only the last result leaves: each step's guarantee holds of it, and none is spent twice."""

    class Stronger(Promise):
        guarantee = Guarantee(epsilon=1.0)

    assert PrivateEncoder(Promise(), Stronger()).guarantee.epsilon == 1.0
    assert PrivateEncoder(Stronger(), Shift(), Promise()).guarantee.epsilon == 1.0


def test_steps_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CapeletError, match="consumes texts, not vectors"):
        PrivateEncoder(Shift(), "wordllama")
    with pytest.raises(CapeletError, match="did you mean 'minilm'"):
        PrivateEncoder("minlm")
