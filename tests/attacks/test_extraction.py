"""Extraction: sampling agrees with ranking everything, planted canaries are found, others not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from capelet.attacks.extraction import (
    CHANCE_BITS,
    RARE,
    SkewNormal,
    canary_findings,
    exposure_of,
    exposures,
    membership,
    tab_attack,
)
from capelet.errors import DataError
from exposure import exact_exposures

WORDS = list(range(4, 14))


@dataclass
class Remembering:
    """A model with made-up losses: random for all sequences, lower for those it remembers."""

    remembered: np.ndarray
    gains: np.ndarray

    def sequence_losses(self, tokens: np.ndarray) -> np.ndarray:
        places = np.arange(1, tokens.shape[1])
        mixed = np.sin(tokens[:, 1:] * (12.9898 + places) + 78.233 * tokens[:, :-1]) * 43758.5453
        losses = (3 + 2 * (mixed - np.floor(mixed))).sum(axis=1)
        for row, gain in zip(self.remembered, self.gains, strict=True):
            losses[(tokens[:, 1:] == row).all(axis=1)] -= gain
        return losses

    def complete(self, first: np.ndarray, steps: int) -> np.ndarray:
        out = np.full((len(first), steps), WORDS[0])
        for row, gain in zip(self.remembered, self.gains, strict=True):
            if gain > 5:
                out[first[:, -1] == row[0]] = row[1:]
        return out


@pytest.fixture(scope="module")
def model() -> Remembering:
    random = np.random.default_rng(0)
    rows = random.choice(WORDS, size=(60, 5))
    rows[:3, 0] = [4, 5, 6]
    rows[3:, 0] = random.choice(WORDS[3:], size=57)
    gains = np.concatenate([[14.0, 13.0, 12.0], np.linspace(0, 3, 57)])
    return Remembering(rows, gains)


def test_sampling_agrees_with_ranking_every_sequence(model: Remembering) -> None:
    exact = exact_exposures(model, model.remembered, WORDS, start=2)
    found = exposures(model, model.remembered, WORDS, start=2, samples=20_000)
    inside = ~found.is_extrapolated
    assert inside.sum() > 30
    # Nothing of the space lies below it.
    assert exact[0] == 5 * math.log2(10)
    assert np.mean(np.abs(found.bits - exact)[inside] <= 0.5) >= 0.95
    assert found.is_extrapolated[0] and math.isfinite(found.bits[0])
    assert found.bits[0] > math.log2(20_000)
    assert (found.bits <= found.space_bits).all()


def test_sequences_that_nobody_inserted_have_chance_exposure() -> None:
    random = np.random.default_rng(1)
    bits = exposure_of(random.normal(size=4000), random.normal(size=20_000), 60.0).bits
    assert abs(bits.mean() - CHANCE_BITS) < 0.1


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(DataError, match="at least 1024 samples"):
        exposures(Remembering(np.zeros((0, 5)), np.zeros(0)), np.zeros((1, 5)), WORDS, 2, samples=9)


def test_the_tail_is_finite_where_a_library_s_is_not() -> None:
    from scipy.stats import norm, skewnorm

    tail = SkewNormal(0.0, 0.0, 1.0)
    points = np.array([-3.0, -8.0, -37.0])
    assert np.allclose(tail.log_cdf(points), norm.logcdf(points), rtol=1e-4)
    skewed = SkewNormal(4.0, 10.0, 2.0)
    near = np.array([9.5, 10.0, 12.0])
    assert np.allclose(skewed.log_cdf(near), skewnorm.logcdf(near, 4.0, 10.0, 2.0), atol=1e-3)
    deep = skewed.log_cdf(np.array([-40.0, -60.0]))
    assert np.isfinite(deep).all() and deep[1] < deep[0] < -1000


def test_a_fit_finds_its_own_distribution() -> None:
    from scipy.stats import skewnorm

    drawn = skewnorm.rvs(3.0, loc=50.0, scale=6.0, size=8000, random_state=2)
    fit = SkewNormal.fit(drawn)
    assert abs(fit.place - 50) < 0.5 and abs(fit.scale - 6) < 0.4 and fit.misfit(drawn) < 0.02
    bimodal = np.r_[drawn, drawn + 60]
    assert SkewNormal.fit(bimodal).misfit(bimodal) > 0.1


def test_the_tab_attack_gives_back_what_is_remembered_and_nothing_else(
    model: Remembering,
) -> None:
    found = tab_attack(model, model.remembered, start=2)
    assert found.exact[:3].all() and found.exact[3:].sum() == 0
    assert (found.share[:3] == 1).all() and found.share[3:].mean() < 0.4


def test_the_tab_attack_stops_at_the_end_of_a_text(model: Remembering) -> None:
    padded = np.c_[model.remembered[:1], [[0]]]

    class Longer(Remembering):
        def complete(self, first: np.ndarray, steps: int) -> np.ndarray:
            return np.c_[super().complete(first, steps - 1), np.full(len(first), 99)]

    longer = Longer(model.remembered, model.gains)
    assert tab_attack(longer, padded, start=2, pad=0).exact.all()


def test_findings_name_levels_and_keep_the_control_apart(model: Remembering) -> None:
    found = exposures(model, model.remembered, WORDS, start=2)
    done = tab_attack(model, model.remembered, start=2)
    levels = np.where(model.gains > 5, 50, 0).astype(np.intp)
    rows = canary_findings(found, done, levels, np.arange(60), 1e-4)
    kinds = {(row.kind, row.metric): row for row in rows}
    assert kinds["extraction", "accuracy"].value == 1.0
    assert kinds["extraction-null", "accuracy"].value == 0.0
    bits = kinds["extraction", "exposure_bits"]
    assert bits.parameters["extrapolated"] == 3 and bits.low <= bits.value <= bits.high
    assert bits.value > kinds["extraction-null", "exposure_bits"].high > CHANCE_BITS - 1


def test_members_are_told_by_loss_and_better_against_a_reference() -> None:
    random = np.random.default_rng(5)
    member = np.arange(RARE + 1000) < 1000
    author = random.integers(40, size=len(member))
    hardness = random.normal(5, 1, size=len(member))
    losses = hardness - 0.5 * member + random.normal(0, 0.2, size=len(member))
    rows = {
        (row.kind, row.attacker, row.metric): row
        for row in membership(losses, member, author, hardness)
    }
    plain = rows["membership", "loss", "auc"]
    better = rows["membership", "loss-against-reference", "auc"]
    assert plain.low > 0.5 and better.value > 0.9 > plain.value
    assert rows["membership", "loss-against-reference", "advantage"].value > 0.6
    rare = rows["membership", "loss-against-reference", "tpr_at_01_fpr"]
    assert rare.chance == 0.001 and rare.value > 0.05 and rare.low > 0.001
    assert rare.value <= rows["membership", "loss-against-reference", "tpr_at_1_fpr"].value
    for metric, chance in (("auc", 0.5), ("advantage", 0.0), ("tpr_at_01_fpr", 0.001)):
        null = rows["membership-null", "loss-against-reference", metric]
        assert null.low < chance + 0.03 and abs(null.value - chance) < 0.08


def test_rare_false_alarms_need_many_texts_that_were_not_trained_on() -> None:
    random = np.random.default_rng(5)
    size = RARE + 500
    for others, wanted in ((RARE - 1, False), (RARE, True)):
        member = np.arange(size) >= others
        rows = membership(random.normal(size=size), member, random.integers(40, size=size))
        assert any(row.metric == "tpr_at_01_fpr" for row in rows) == wanted


def test_membership_needs_both_kinds() -> None:
    with pytest.raises(DataError, match="texts that were not"):
        membership(np.ones(4), np.ones(4, dtype=bool), np.arange(4))


@pytest.mark.parametrize("losses", [np.full(2000, 3.0), np.full(2000, np.nan)])
def test_a_model_that_ranks_nothing_is_refused(losses: np.ndarray) -> None:
    with pytest.raises(DataError, match="diverged"):
        exposure_of(np.array([2.0]), losses, 60.0)


def test_membership_without_both_kinds_of_text_has_no_advantage_and_says_so() -> None:
    """One author wrote all that was trained on, the other the rest: nothing can be scored."""
    random = np.random.default_rng(0)
    author = np.repeat([0, 1], 20)
    rows = membership(random.normal(size=40), author == 0, author)
    found = next(row for row in rows if (row.kind, row.metric) == ("membership", "advantage"))
    assert np.isnan(found.value) and found.low is not None and np.isnan(found.low)
