"""A study release repeats to the byte, has the law of the mechanism, and is taken by nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from capelet.errors import CapeletError
from capelet.evaluation.ceilings import Ceilings
from capelet.interfaces import Step
from capelet.ledger.budgets import Budget
from capelet.ledger.store import Ledger
from capelet.mechanisms import (
    MECHANISMS,
    Gaussian,
    Laplace,
    PrivUnit,
    Projection,
    RandomisedResponse,
    Rounding,
    TruncatedExponential,
    WordDropout,
    WordReplacement,
)
from capelet.mechanisms.sampling import NoiseStep, SeededStream
from capelet.mechanisms.specimens import SPECIMENS
from capelet.privacy.guarantees import Guarantee
from capelet.release import PrivateEncoder, Release
from capelet.release.batch import encode
from capelet.release.seeded import SeededEncoder

TABLE = (["good", "fine", "bad", "poor"], [[1.0, 0.0], [0.8, 0.2], [-1.0, 0.0], [-0.8, -0.2]])
STEPS: dict[str, Any] = {
    "laplace": Laplace(4.0),
    "gaussian": Gaussian(1.0, 1e-5),
    "privunit": PrivUnit(4.0),
    "randomised-response": RandomisedResponse(1.0, 3),
    "projection": Projection(2),
    "rounding": Rounding("int8"),
    "word-replacement": WordReplacement(2.0, TABLE),
    "truncated-exponential": TruncatedExponential(2.0, 1.0, TABLE),
    "word-dropout": WordDropout(0.5),
}
NOISY = [name for name in STEPS if name not in ("projection", "rounding")]


class Lengths:
    """An encoder of the lengths and initials of words: it lets word noise through to vectors."""

    name, backend, dimension, fingerprint = "lengths", "none", 2, "lengths"
    isolates_rows = True

    def encode(self, texts: Any, progress: Any = None) -> Any:
        rows = [[len(text), sum(map(ord, text))] for text in texts]
        return np.array(rows, dtype=np.float32).reshape(-1, 2)

    def truncated(self, texts: Any) -> Any:
        return np.zeros(len(texts), dtype=bool)


def private_with(name: str) -> tuple[PrivateEncoder, Any]:
    """A private encoder of that one mechanism, and inputs for it."""
    step = STEPS[name] if name in STEPS else SPECIMENS[name](1.0)
    if step.consumes == "texts":
        return PrivateEncoder(step, Lengths()), ["a good film", "bad, poor acting", "fine"] * 20
    return PrivateEncoder(step), np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


def test_every_mechanism_is_tried_here() -> None:
    assert set(STEPS) == set(MECHANISMS)


@pytest.mark.parametrize("name", NOISY)
def test_a_seed_gives_the_same_bytes_and_another_gives_others(name: str) -> None:
    private, inputs = private_with(name)
    first, same, other, later = (
        private.study_release(inputs, seed, draw=draw).vectors.tobytes()
        for seed, draw in ((7, "a"), (7, "a"), (8, "a"), (7, "b"))
    )
    assert first == same and len({first, other, later}) == 3
    # The control: a release cannot be repeated, by any argument.
    assert private.release(inputs).vectors.tobytes() != private.release(inputs).vectors.tobytes()
    with pytest.raises(TypeError):
        private.release(inputs, seed=7)  # type: ignore[call-arg]
    assert private.draws


def test_a_step_without_noise_is_the_same_in_a_study() -> None:
    private, inputs = private_with("projection")
    vectors = [private.study_release(inputs, seed).vectors for seed in (1, 2)]
    np.testing.assert_array_equal(vectors[0], vectors[1])
    np.testing.assert_array_equal(vectors[0], private.release(inputs).vectors)
    assert not private.draws


@pytest.mark.parametrize("name", [*STEPS, *SPECIMENS])
def test_a_step_draws_where_two_releases_differ(name: str) -> None:
    """Word dropout promises nothing and draws; noise from a known seed promises and does not."""
    private, inputs = private_with(name)
    first, second = (private.release(inputs).vectors.tobytes() for _ in range(2))
    assert private.draws is (first != second)


def test_dropout_at_zero_draws_nothing() -> None:
    assert not PrivateEncoder(WordDropout(0.0, ("film",)), Lengths()).draws


@pytest.mark.parametrize("name", NOISY)
def test_it_promises_nothing_and_says_so(name: str, tmp_path: Path) -> None:
    private, inputs = private_with(name)
    release = private.study_release(inputs, 7)
    assert release.guarantee.status == "none" and release.recipe["seed"] == 7
    assert release.unseeded_guarantee == private.guarantee
    if private.guarantee.notion != "none":
        assert "seeded" in release.guarantee.sentence()
    # The file says it too.
    loaded = Release.load(release.save(tmp_path / "study.parquet"))
    assert loaded.guarantee.status == "none" and loaded.recipe["seed"] == 7


def test_dropout_before_noise_promises_nothing_of_a_word_either() -> None:
    private = PrivateEncoder(WordDropout(0.5), Lengths(), Laplace(4.0))
    words = private.study_release(["a good film"], 0).word_guarantee
    assert words is not None and words.status == "none"
    assert private.word_guarantee is not None and private.word_guarantee.status == "proven"


# ---- the law -------------------------------------------------------------------------------------


def noise_of(step: Step, row: list[float], count: int, seed: int = 3) -> Any:
    """Study releases of one row, many times."""
    rows = np.tile(np.array(row), (count, 1))
    return PrivateEncoder(step).study_release(rows, seed).vectors


def test_seeded_laplace_is_laplace() -> None:
    noise = noise_of(Laplace(4.0), [0.25, -0.75], 20_000) - [0.25, -0.75]
    assert stats.kstest(noise.ravel(), stats.laplace(scale=0.5).cdf).pvalue > 0.01
    # The control: another ε is noticed.
    assert stats.kstest(noise.ravel(), stats.laplace(scale=0.48).cdf).pvalue < 1e-4


def test_seeded_gaussian_is_gaussian() -> None:
    step = Gaussian(1.0, 1e-5)
    noise = noise_of(step, [0.6, -0.8], 20_000) - [0.6, -0.8]
    assert stats.kstest(noise.ravel(), stats.norm(scale=step.sigma).cdf).pvalue > 0.01
    assert stats.kstest(noise.ravel(), stats.norm(scale=0.97 * step.sigma).cdf).pvalue < 1e-3


def test_seeded_response_is_response() -> None:
    symbols = noise_of(RandomisedResponse(1.0, 3), [0.0, 1.0, 0.0], 30_000).argmax(axis=1)
    share = np.e / (np.e + 2)
    chances = np.array([(1 - share) / 2, share, (1 - share) / 2])
    assert stats.chisquare(np.bincount(symbols), 30_000 * chances).pvalue > 0.01


def test_seeded_dropout_keeps_its_share() -> None:
    texts = ["one two three four five six seven eight"] * 2_000
    lengths = [len(text.split()) for text in WordDropout(0.3).draw(texts, SeededStream(5))]
    expected = 2_000 * stats.binom(8, 0.7).pmf(np.arange(9))
    observed = np.bincount(lengths, minlength=9)
    # Few texts lose nearly all words: the small cells are one.
    pooled = [np.concatenate([[cells[:4].sum()], cells[4:]]) for cells in (observed, expected)]
    assert stats.chisquare(*pooled).pvalue > 0.01


@pytest.mark.parametrize("name", ["word-replacement", "truncated-exponential"])
def test_seeded_words_are_those_of_a_release(name: str) -> None:
    """Against draws of the operating system: fails by chance once in a million runs."""
    texts = ["good bad"] * 4_000
    counts = []
    for replacements in (STEPS[name].draw(texts, SeededStream(11)), STEPS[name](texts)):
        words = [text.split()[0] for text in replacements]
        counts.append([words.count(word) for word in TABLE[0]])
    assert stats.chi2_contingency(counts).pvalue > 1e-6
    # The control: a slightly larger ε is told apart.
    other = replace(STEPS[name], epsilon=3.0).draw(texts, SeededStream(11))
    words = [text.split()[0] for text in other]
    strong = [words.count(word) for word in TABLE[0]]
    assert stats.chi2_contingency([counts[0], strong]).pvalue < 1e-6


def test_seeded_privunit_has_the_angles_of_a_release() -> None:
    """Against draws of the operating system: fails by chance once in a million runs."""
    rows = np.tile([0.6, 0.8, 0.0], (8_000, 1))
    step = PrivUnit(2.0)
    angles = [out @ rows[0] for out in (step.draw(rows, SeededStream(2)), step(rows))]
    assert stats.ks_2samp(*angles).pvalue > 1e-6
    stronger = PrivUnit(3.0).draw(rows, SeededStream(2)) @ rows[0]
    assert stats.ks_2samp(angles[1], stronger).pvalue < 1e-6


def test_rows_steps_and_draws_have_noise_of_their_own() -> None:
    """A stream that was used twice would show as equal noise."""
    zeros = np.tile([1.0, 0.0], (50, 1))
    twice = PrivateEncoder(Laplace(4.0), Laplace(4.0))
    noise = twice.study_release(zeros, 0).vectors
    assert len(np.unique(noise)) == noise.size
    one = Laplace(4.0).draw(zeros, SeededStream(0, "release 0", 0))
    two = Laplace(4.0).draw(zeros, SeededStream(0, "release 0", 1))
    assert not np.isin(one, two).any()


# ---- who refuses it ------------------------------------------------------------------------------


def test_no_encoder_is_made_of_its_recipe() -> None:
    private, inputs = private_with("laplace")
    release = private.study_release(inputs, 7)
    with pytest.raises(CapeletError, match="recipe of a study"):
        PrivateEncoder.from_steps(release.recipe)
    steps = {"steps": release.recipe["steps"]}
    assert PrivateEncoder.from_steps(steps).guarantee == Guarantee(4.0)


def test_no_ledger_charges_for_it(tmp_path: Path) -> None:
    private, inputs = private_with("laplace")
    release = private.study_release(inputs, 7)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        with pytest.raises(CapeletError):
            ledger.check([], release.guarantee, Budget(8.0))
        ledger.check([], private.release(inputs).guarantee, Budget(8.0))


def test_encode_and_save_refuse_a_study_encoder(tmp_path: Path) -> None:
    private, inputs = private_with("laplace")
    study = SeededEncoder.of(private, 7)
    source = private.release(inputs).save(tmp_path / "in.parquet")
    with pytest.raises(CapeletError, match="seeded and promises nothing"):
        encode(source, tmp_path / "out.parquet", study, vectors="vector")
    assert not (tmp_path / "out.parquet").exists()
    with pytest.raises(CapeletError, match="is not saved"):
        study.save(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
    # The control: the encoder that it was made of releases, and is saved.
    assert encode(source, tmp_path / "out.parquet", private, vectors="vector").rows == 60
    assert private.save(tmp_path / "folder").is_dir()


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    private, inputs = private_with("laplace")
    with pytest.raises(CapeletError, match="a seed must be"):
        private.study_release(inputs, seed)


def test_noise_that_no_seed_reaches_is_refused() -> None:
    specimen = SPECIMENS["float-laplace"](4.0)
    assert not isinstance(specimen, NoiseStep)
    with pytest.raises(CapeletError, match="draws noise of its own"):
        PrivateEncoder(specimen).study_release(np.eye(3), 0)


# ---- the encoder of a study ----------------------------------------------------------------------


def test_a_study_encoder_numbers_its_releases() -> None:
    private, inputs = private_with("laplace")
    one, two = (SeededEncoder.of(private, 7) for _ in range(2))
    draws = [one.release(inputs).vectors for _ in range(2)]
    assert not np.array_equal(*draws)
    for vectors in draws:
        np.testing.assert_array_equal(two.release(inputs).vectors, vectors)
    training = SeededEncoder.of(private, 7, "training").release(inputs).vectors
    assert not np.isin(training, draws[0]).any()


def test_a_study_encoder_keeps_its_seed_and_is_read_against_the_law(planted: Any) -> None:
    private, _ = private_with("word-dropout")
    study = SeededEncoder.of(PrivateEncoder(*private.steps, Laplace(4.0)), 7)
    same = study.with_encoder(lambda encoder: encoder)
    assert isinstance(same, SeededEncoder) and same.seed == 7
    assert study.guarantee.status == "none"
    assert study.word_guarantee is not None and study.word_guarantee.status == "none"
    release = study.release(["a good film"])
    assert release.unseeded_guarantee is not None and release.unseeded_guarantee.status == "proven"
    assert Ceilings.of(release, planted).guarantee == Guarantee(4.0)
    # A release from the operating system is read against its own promise.
    assert Ceilings.of(PrivateEncoder(Laplace(2.0)).release(np.eye(3)), planted).guarantee == (
        Guarantee(2.0)
    )


def test_a_study_can_go_on_in_another_process() -> None:
    stream = SeededStream(1)
    first = stream.words(np.uint64, 4)
    stream._owner = -1  # as after a fork
    both = np.concatenate([first, stream.words(np.uint64, 4)])
    np.testing.assert_array_equal(both, SeededStream(1).words(np.uint64, 8))
