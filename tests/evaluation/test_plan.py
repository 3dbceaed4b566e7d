"""Whatever is wrong with the data is said before anything is encoded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.errors import DataError
from capelet.evaluation.plan import Plan
from capelet.privacy.guarantees import NONE, Guarantee


def test_nothing_to_measure(planted: Corpus) -> None:
    with pytest.raises(DataError, match="nothing to measure"):
        Plan.of(replace(planted, label=None, private={}))


def test_a_label_that_is_the_secret_is_a_warning(planted: Corpus) -> None:
    same = replace(planted, label=planted.private["open"])
    assert Plan.of(same, 1).warnings == (
        "the label 'side' and the private attribute 'open' are the same: the task is the leak",
    )
    assert Plan.of(planted, 1).warnings == ()


def test_bins_and_seeds_are_checked(planted: Corpus) -> None:
    with pytest.raises(DataError, match="bins= names 'age'"):
        Plan.of(planted, bins={"age": [30]})
    with pytest.raises(DataError, match="at least 1"):
        Plan.of(planted, seeds=0)


def test_splits_differ_between_seeds(planted: Corpus) -> None:
    plan = Plan.of(planted, 3)
    assert plan.targets == 3
    assert len({tuple(np.sort(parts.victims)) for parts in plan.splits}) == 3


def test_an_epsilon_that_cannot_work_is_said_in_advance(planted: Corpus) -> None:
    label = np.array(["often"] * 500 + ["seldom"] * 100, dtype=object)
    plan = Plan.of(replace(planted, label=label), 1)
    (warning,) = plan.epsilon_warnings(Guarantee(epsilon=1.0))
    assert "commonest class of 'side' (83.3%); the least ε that can is 1.61" in warning
    assert plan.epsilon_warnings(Guarantee(epsilon=2.0)) == () and plan.epsilon_warnings(NONE) == ()


def test_the_split_of_a_seed_is_the_same_alone_and_among_others(planted: Corpus) -> None:
    alone, among = Plan.of(planted, [7]), Plan.of(planted, [2, 7])
    assert [parts.seed for parts in among.splits] == [2, 7]
    for part in ("defender", "attacker", "victims"):
        rows = [getattr(parts, part).tolist() for parts in (alone.splits[0], among.splits[1])]
        assert rows[0] == rows[1] != getattr(among.splits[0], part).tolist()


def few_people(of_rare: int, authors: int = 30) -> Corpus:
    """600 ready vectors of so many authors, of whom so many have the rare class."""
    random = np.random.default_rng(0)
    author = random.integers(0, authors, 600)
    column = [np.array([str(item) for item in some], dtype=object) for some in (
        author, author < of_rare, random.integers(0, 2, 600))]  # fmt: skip
    return Corpus(
        "few",
        vectors=random.normal(size=(600, 4)).astype(np.float32),
        author=column[0],
        label_name="task",
        label=column[2],
        private={"rare": column[1]},
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_search_is_cut_by_author_with_two_classes_in_each_part(seed: int) -> None:
    plan = Plan.of(few_people(15), [seed])
    inner, whole = plan.search_split(plan.secrets), plan.splits[0]
    parts = [inner.training("defender")[0], inner.attacker, inner.victims]
    people = [set(plan.units[rows].tolist()) for rows in parts]
    assert not people[0] & people[1] and not people[0] & people[2] and not people[1] & people[2]
    for rows in parts:
        assert all(len(np.unique(item.codes[rows])) == 2 for item in plan.secrets)
    everyone = np.sort(np.concatenate([inner.defender, inner.attacker, inner.victims]))
    np.testing.assert_array_equal(everyone, np.sort(whole.defender))


def test_too_few_people_for_a_search_are_told_so() -> None:
    plan = Plan.of(few_people(4), 1)
    with pytest.raises(DataError, match=r"of the rarest class of 'rare': too few to learn, to att"):
        plan.search_split(plan.secrets)
    alone = Plan.of(few_people(2, authors=4), 1)
    with pytest.raises(DataError, match="authors of the defender's part: too few to learn"):
        replace(alone, label=None).search_split(())
