"""The whole inversion attack on a release: who is on which side, and what is refused."""

from __future__ import annotations

import pytest

from capelet.errors import CapeletError, DataError, EncoderError
from capelet.evaluation.inversion import ATTACKS, Inversion
from invented import AUXILIARY, SMALL, VICTIMS, Bag, Plain


def test_the_whole_attack_on_a_release() -> None:
    attack = Inversion(draws=2, options={"multi-label": SMALL, "multi-set": SMALL})
    found = attack.measure(AUXILIARY, Plain(Bag(noise=0.1)))  # type: ignore[arg-type]
    for name in attack.attacks:
        value = next(row.value for row in found.select(kind="inversion", attacker=name))
        assert value > found.value(kind="inversion-reference", metric="f1") + 0.1
        null = found.value(kind="inversion-null", attacker=name)
        assert null < value - 0.1
    assert found.artefacts["inversion_examples"]["redacted"]


def test_no_author_is_on_both_sides() -> None:
    authors = [f"a{row % 12}" for row in range(len(AUXILIARY))]
    texts = [f"{text} {author}" for text, author in zip(AUXILIARY, authors, strict=True)]
    parts = Inversion()._parts(texts, None, authors)
    own = {text.split()[-1] for text in parts.auxiliary}
    assert own and not own & {text.split()[-1] for text in parts.victims}


def test_a_sentence_that_two_writers_share_is_taken_from_the_attacker() -> None:
    texts = [f"word{i} word{i + 1} word{i + 2}" for i in range(60)]
    shared = [*texts, *texts[:30]]
    authors = [f"a{i % 30}" for i in range(60)] + [f"b{i}" for i in range(30)]
    parts = Inversion(victims=20)._parts(shared, None, authors)
    assert parts.victims
    assert not set(parts.victims) & set(parts.auxiliary)
    both = Inversion(victims=20, overlap=True)._parts(shared, None, authors)
    assert set(both.victims) & set(both.auxiliary)


def test_bad_input_is_said_in_one_sentence() -> None:
    with pytest.raises(DataError, match="auxiliary texts too"):
        Inversion().measure(VICTIMS, Plain(Bag()), auxiliary=VICTIMS)  # type: ignore[arg-type]
    with pytest.raises(CapeletError, match="did you mean 'multi-set'"):
        Inversion(attacks=["multiset"]).measure(VICTIMS, Plain(Bag()))  # type: ignore[arg-type]
    with pytest.raises(EncoderError, match="black-box"):
        Inversion(attacks=["sparse-coding"]).measure(AUXILIARY, Plain(Bag()))  # type: ignore[arg-type]


def test_every_attack_is_described() -> None:
    assert all("eq." in line for line in ATTACKS.values())
