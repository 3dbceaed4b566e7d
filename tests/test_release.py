"""Steps are checked for fit, noise carries its guarantee, a release says how it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.errors import CapeletError, OutputError
from capelet.guarantees import NONE, Guarantee
from capelet.mechanisms import Gaussian, Laplace, WordDropout, WordReplacement
from capelet.mechanisms.words import amplified
from capelet.release import PrivateEncoder, Release, recipe_hash


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


class Upper:
    """A text step of someone else's, which may do anything to the words."""

    consumes = emits = "texts"
    guarantee = None

    def describe(self) -> dict[str, Any]:
        return {"step": "upper"}

    def __call__(self, batch: list[str]) -> list[str]:
        return [text.upper() for text in batch]


TABLE = (["good", "fine", "bad"], [[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0]])


def test_dropout_before_noise_gives_each_word_a_stronger_promise() -> None:
    private = PrivateEncoder(WordDropout(0.5), "wordllama", Laplace(2.0))
    assert private.guarantee == Guarantee(2.0)  # what bounds a whole text stays as it is
    promise = private.word_guarantee
    assert promise == Guarantee(amplified(2.0, 0.5), unit="word")
    assert promise.epsilon < 2.0
    rough = PrivateEncoder(WordDropout(0.3), "wordllama", Gaussian(1.0, 1e-5)).word_guarantee
    assert rough is not None and rough.epsilon == amplified(1.0, 0.3)
    assert rough.delta == pytest.approx(0.7e-5)


def test_only_noise_after_the_dropout_is_amplified_and_the_best_dropout_counts() -> None:
    replace = WordReplacement(3.0, TABLE)
    drop, often = WordDropout(0.5), WordDropout(0.9)
    wanted = PrivateEncoder(drop, "wordllama", Laplace(2.0)).word_guarantee
    assert PrivateEncoder(replace, drop, "wordllama", Laplace(2.0)).word_guarantee == wanted
    assert PrivateEncoder(drop, replace, "wordllama", Laplace(2.0)).word_guarantee == wanted
    best = PrivateEncoder(drop, often, "wordllama", Laplace(2.0)).word_guarantee
    assert best is not None and best.epsilon == amplified(2.0, 0.9)


@pytest.mark.parametrize(
    "steps",
    [
        (WordDropout(0.5), "wordllama"),  # nothing to amplify
        (WordDropout(0.5), WordReplacement(3.0, TABLE), "wordllama"),  # metric, not local
        (WordDropout(0.0, mask=["good"]), "wordllama", Laplace(2.0)),  # a mask adds nothing
        (Upper(), WordDropout(0.5), "wordllama", Laplace(2.0)),  # may mix words
        ("wordllama", Laplace(2.0)),
    ],
)
def test_nothing_is_claimed_where_the_proof_does_not_reach(steps: tuple[Any, ...]) -> None:
    assert PrivateEncoder(*steps).word_guarantee is None


def test_steps_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CapeletError, match="consumes texts, not vectors"):
        PrivateEncoder(Shift(), "wordllama")
    with pytest.raises(CapeletError, match="did you mean 'minilm'"):
        PrivateEncoder("minlm")


RECIPE = """
[[steps]]
step = "encoder"
name = "wordllama"

[[steps]]
step = "laplace"
epsilon = 8.0
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_makes_a_private_encoder_and_comes_back(tmp_path: Path) -> None:
    private = PrivateEncoder.from_recipe(written(tmp_path, RECIPE))
    assert private.guarantee == Guarantee(epsilon=8.0)
    again = PrivateEncoder.from_recipe(written(tmp_path, private.to_recipe()))
    assert again.recipe == private.recipe
    assert PrivateEncoder.from_steps(private.release(["a text"]).recipe).recipe == private.recipe


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ("", "at least one"),
        ("steps = 3", "at least one"),
        ("[[steps]]\nepsilon = 1", "needs a name"),
        ('[[steps]]\nstep = "laplas"', "did you mean 'laplace'"),
        ('[[steps]]\nstep = "laplace"', "needs 'epsilon'"),
        ('[[steps]]\nstep = "laplace"\nepsilon = 1\nsensitivity = 2', "no 'sensitivity'"),
        ('[[steps]]\nstep = "laplace"\nepsilon = -1', "epsilon"),
        ('[[steps]]\nstep = "laplace"\nepsilon = true', "epsilon"),
        ('[[steps]]\nstep = "encoder"\nnam = "minilm"', "did you mean 'name'"),
        (
            '[[steps]]\nstep = "encoder"\nname = "wordllama"\nfingerprint = "0"',
            "fingerprint differs",
        ),
        ('[[steps]]\nstep = "specimen:half-noise"\nepsilon = 1', "known to be broken"),
        ('seed = 42\n[[steps]]\nstep = "laplace"\nepsilon = 1', "it was given 'seed'"),
        ("[[steps", "not TOML"),
    ],
)
def test_recipes_that_do_not_hold_are_refused(tmp_path: Path, recipe: str, sentence: str) -> None:
    with pytest.raises(CapeletError, match=sentence):
        PrivateEncoder.from_recipe(written(tmp_path, recipe))


def test_specimens_only_when_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, '[[steps]]\nstep = "specimen:half-noise"\nepsilon = 1.0')
    assert PrivateEncoder.from_recipe(path, specimens=True).guarantee.status == "broken"
    with pytest.raises(CapeletError, match="cannot read the recipe"):
        PrivateEncoder.from_recipe(tmp_path / "none.toml")


def test_a_release_keeps_its_guarantee_in_its_file(tmp_path: Path) -> None:
    release = PrivateEncoder(Promise()).release(np.eye(4, dtype=np.float32))
    back = Release.load(release.save(tmp_path / "out.parquet"))
    np.testing.assert_array_equal(back.vectors, release.vectors)
    assert back.guarantee == release.guarantee and back.recipe_hash == release.recipe_hash
    assert back.word_guarantee is None
    dropped = PrivateEncoder(WordDropout(0.5), "wordllama", Laplace(2.0)).release(["a good text"])
    told = Release.load(dropped.save(tmp_path / "words.parquet")).word_guarantee
    assert told == dropped.word_guarantee == Guarantee(amplified(2.0, 0.5), unit="word")
    plain = PrivateEncoder().release(np.eye(2))
    assert Release.load(plain.save(tmp_path / "plain.parquet")).guarantee == NONE
    (tmp_path / "other.parquet").write_bytes(b"no")
    with pytest.raises(OutputError, match="not a release"):
        Release.load(tmp_path / "other.parquet")
