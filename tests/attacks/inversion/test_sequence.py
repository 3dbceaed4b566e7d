"""A sentence is read back in order where a vector holds it, and none where it holds none."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from capelet.attacks.inversion.blackbox import Inverter, MultiLabel
from capelet.attacks.inversion.bleu import bleu, bleu_counts, exact
from capelet.attacks.inversion.candidate_search import Neighbours
from capelet.attacks.inversion.decoder import END, PAD, Decoder, Pieces, crop
from capelet.attacks.inversion.measure import Attacker, Victims, sentence_findings
from capelet.attacks.inversion.rewriting import Maker, edits
from capelet.attacks.inversion.sequence import SequenceInversion
from capelet.attacks.inversion.word_sets import Vocabulary, compare, most_frequent
from capelet.data.text import words_of
from capelet.errors import CapeletError, DataError
from capelet.evaluation.inversion import Inversion
from capelet.findings import Findings
from capelet.numerics import cosines
from capelet.release import PrivateEncoder

WORDS = [f"{a}{b}{c}" for a in "bdf" for b in "aei" for c in "lmnr"]  # 36 invented words
SMALL: dict[str, Any] = {"width": 96, "depth": 1, "dropout": 0.1, "epochs": 12, "batch": 64}
TINY: dict[str, Any] = {
    "width": 64,
    "layers": 2,
    "prefix": 2,
    "pieces": 340,
    "epochs": 8,
    "batch": 64,
    "learning_rate": 2e-3,
    "minutes": 1.5,
    "samples": 5,
    "rounds": 2,
    "variants": 3,
    "climbs": 1,
    "edits": 20,
    "tune": 30,
    "device": "cpu",
}


def sentences(count: int, seed: int) -> list[str]:
    """Sentences of 3 to 6 invented words whose frequencies fall as 1 / rank."""
    drawn = np.random.default_rng(seed)
    share = 1 / np.arange(1, len(WORDS) + 1)
    share /= share.sum()
    return [
        " ".join(drawn.choice(WORDS, size=drawn.integers(3, 7), replace=False, p=share))
        for _ in range(count)
    ]


class Ordered:
    """An encoder that keeps words and their order: each position turns a word's vector its way."""

    name, backend, fingerprint, dimension = "ordered", "numpy", "ordered", 48

    def __init__(self, noise: float = 0.0, mute: bool = False) -> None:
        drawn = np.random.default_rng(5)
        self.table = {word: drawn.normal(size=self.dimension) for word in WORDS}
        self.turn = 1 + 0.5 * drawn.choice([-1, 1], size=(64, self.dimension))
        self.noise, self.mute, self.random = noise, mute, np.random.default_rng(6)

    def encode(self, texts: Sequence[str], progress: Any = None) -> np.ndarray:
        made = np.zeros((len(texts), self.dimension))
        for row, text in enumerate(texts):
            for place, word in enumerate(words_of(text)[:64]):
                if word in self.table and not self.mute:
                    made[row] += self.table[word] * self.turn[place]
        noise = self.random.normal(size=made.shape) * (1.0 if self.mute else self.noise)
        return (made + noise).astype(np.float32)

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        return np.zeros(len(texts), dtype=bool)


AUXILIARY, VICTIMS = sentences(1000, 0), sentences(60, 1)
VOCABULARY = Vocabulary.of(AUXILIARY)


def f1(texts: Sequence[str]) -> float:
    truth = VOCABULARY.sets(VICTIMS)
    return float(compare(VOCABULARY.sets(texts), truth, len(VOCABULARY)).f1.mean())


def labels(encoder: Ordered) -> Inverter:
    sets = VOCABULARY.sets(AUXILIARY)
    return MultiLabel(**SMALL).fit(encoder.encode(AUXILIARY), sets, VOCABULARY)


def blind() -> float:
    truth = VOCABULARY.sets(VICTIMS)
    held = VOCABULARY.sets(AUXILIARY[:300])
    guess = most_frequent(held, len(VOCABULARY), len(truth))
    return float(compare(guess, truth, len(VOCABULARY)).f1.mean())


# ---- the attack and its controls


def test_sentences_are_read_back_in_order_and_correcting_helps() -> None:
    encoder = Ordered()
    own, seen = encoder.encode(AUXILIARY), encoder.encode(VICTIMS)
    words = labels(encoder)
    fitted = SequenceInversion(**TINY).fit(own, AUXILIARY, encoder.encode, words, VOCABULARY)
    proposing = replace(fitted, attack=replace(fitted.attack, rounds=0))
    first, last = proposing.read(seen), fitted.read(seen)
    before, after = [read.text for read in first], [read.text for read in last]
    assert f1(after) > 0.85 > blind() + 0.3
    assert f1(after) > f1(before)
    assert exact(after, VICTIMS).mean() > 0.3
    assert bleu(bleu_counts(after, VICTIMS).sum(axis=0)) > bleu(
        bleu_counts(before, VICTIMS).sum(axis=0)
    )
    assert np.mean([read.cosine for read in last]) > np.mean([read.cosine for read in first])
    # What is claimed to be near is near.
    found = cosines(encoder.encode(after), seen)
    assert found == pytest.approx(np.array([read.cosine for read in last]), abs=1e-5)


def test_nothing_is_read_from_noise() -> None:
    encoder = Ordered(mute=True)
    own, seen = encoder.encode(AUXILIARY), encoder.encode(VICTIMS)
    quick = {**TINY, "epochs": 3}
    fitted = SequenceInversion(**quick).fit(
        own, AUXILIARY, encoder.encode, labels(encoder), VOCABULARY
    )
    said = [read.text for read in fitted.read(seen)]
    assert f1(said) < blind() + 0.05
    assert exact(said, VICTIMS).mean() < 0.1


def test_a_noised_release_is_attacked_through_its_noise_and_shows_no_text() -> None:
    encoder = Ordered(noise=0.3)
    quick = {**TINY, "epochs": 5, "victims": 40}
    attack = Inversion(
        attacks=["sequence", "multi-label"],
        draws=2,
        victims=60,
        options={"multi-label": SMALL, "sequence": quick},
    )
    found = attack.measure(AUXILIARY, PrivateEncoder(encoder))
    whole = found.select(kind="inversion", metric="f1", attacker="sequence", subgroup=None)[0]
    assert whole.n == 40
    assert whole.value > found.value(kind="inversion-reference", metric="f1") + 0.15
    null = found.value(kind="inversion-null", metric="f1", attacker="sequence")
    assert null < whole.value - 0.15
    for metric in ("bleu", "exact_match"):
        row = found.select(kind="inversion", metric=metric, attacker="sequence")[0]
        assert 0 <= row.low <= row.value <= row.high <= 1
        assert found.value(kind="inversion-null", metric=metric) <= row.value
    hidden = json.dumps(found.artefacts["inversion_examples"])
    assert not set(words_of(hidden)) & set(WORDS)


def test_examples_stand_side_by_side_when_asked() -> None:
    quick = {**TINY, "epochs": 1, "rounds": 1, "edits": 3, "victims": 12}
    attack = Inversion(
        attacks=["sequence"],
        victims=30,
        redact=False,
        options={"multi-label": {**SMALL, "epochs": 2}, "sequence": quick},
    )
    found = attack.measure(AUXILIARY[:400], PrivateEncoder(Ordered()))
    entry = found.artefacts["inversion_examples"]["examples"][0]
    assert entry["text"] in AUXILIARY
    assert words_of(entry["attackers"]["sequence"]["sentence"])


def test_ready_vectors_and_too_few_texts_are_refused() -> None:
    with pytest.raises(CapeletError, match="sends texts"):
        Inversion(attacks=["sequence"]).measure(AUXILIARY, PrivateEncoder())
    encoder = Ordered()
    few = AUXILIARY[:60]
    with pytest.raises(DataError, match="too few"):
        SequenceInversion().fit(encoder.encode(few), few, encoder.encode, None, VOCABULARY)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="do not match"):
        SequenceInversion().fit(encoder.encode(few), AUXILIARY, encoder.encode, None, VOCABULARY)  # type: ignore[arg-type]


# ---- what is scored


def test_bleu_is_that_of_its_paper() -> None:
    """Papineni et al. 2002: clipped counts (their example 2), brevity, and a value by hand."""
    clipped = bleu_counts(["the the the the the the the"], ["The cat is on the mat"])[0]
    assert (clipped[0], clipped[4]) == (2, 7)
    # precisions 5/6, 3/5, 2/4, 1/3 over lengths 6 and 7: (1/12) ** (1/4) * exp(1 - 7/6)
    counts = bleu_counts(["the cat sat on the mat"], ["the cat sat on a big mat"])
    assert counts[0, :4].tolist() == [5, 3, 2, 1]
    by_hand = (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25 * np.exp(1 - 7 / 6)
    assert bleu(counts[0]) == pytest.approx(by_hand)
    assert bleu(bleu_counts(["a b c d"], ["A b, c d"])[0]) == 0  # no four in a row
    same = bleu_counts(VICTIMS, VICTIMS)
    assert bleu(same.sum(axis=0)) == pytest.approx(1)


def test_bleu_counts_over_the_corpus_not_per_sentence() -> None:
    guesses, truths = ["a b c d e", "x"], ["a b c d e", "y z"]
    summed = bleu_counts(guesses, truths).sum(axis=0)
    by_hand = (5 / 6 * 1 * 1 * 1) ** 0.25 * np.exp(1 - 7 / 6)
    assert bleu(summed) == pytest.approx(by_hand)


def test_sentence_findings_have_a_null() -> None:
    rows = Findings(tuple(sentence_findings(Attacker("oracle"), Victims(VICTIMS), VICTIMS)))
    assert rows.value(kind="inversion", metric="exact_match") == 1
    assert rows.value(kind="inversion-null", metric="exact_match") < 0.1
    assert rows.value(kind="inversion-null", metric="bleu") < 0.3


# ---- parts


def test_pieces_give_any_text_back() -> None:
    texts = ["Bal dem, fir!", "naïve 😀 zebra"]
    pieces = Pieces.of(AUXILIARY, most=400, longest=60, lower=False)
    wide = Pieces(pieces.inner, 60)
    assert wide.texts(wide.rows(texts)) == texts
    small = Pieces.of(AUXILIARY, most=400, longest=5, lower=True)
    rows = small.rows(["BAL dem fir nar bel dol"])
    assert rows.shape == (1, 5) and rows[0, -1] == END
    assert "bal".startswith(small.texts(rows)[0][:3])


def test_writing_step_by_step_is_the_same_as_all_at_once() -> None:
    torch.manual_seed(0)
    decoder = Decoder(8, 50, 12, width=64, layers=2, prefix=2, dropout=0.1).eval()
    torch.nn.init.normal_(decoder.piece.weight, std=0.5)
    target, gap = torch.randn(6, 8), torch.randn(6, 8)
    draft = torch.randint(4, 50, (6, 5))
    for shown in (decoder.context(target), decoder.context(target, gap, draft)):
        rows = decoder.write(shown, torch.zeros(6))
        fed = torch.cat([torch.full((6, 1), 1), rows[:, :-1]], dim=1)
        scores = decoder(shown, fed)
        scores[:, :, :END] = -1e4
        there = rows != PAD
        assert (scores.argmax(dim=2)[there] == rows[there]).all()


def test_temperature_draws_and_zero_does_not() -> None:
    torch.manual_seed(0)
    decoder = Decoder(8, 50, 12, width=64, layers=1, prefix=2, dropout=0.0).eval()
    shown = decoder.context(torch.randn(1, 8).repeat(8, 1))
    greedy = decoder.write(shown, torch.zeros(8))
    drawn = decoder.write(shown, torch.ones(8))
    assert len({tuple(row) for row in greedy.tolist()}) == 1
    assert len({tuple(row) for row in drawn.tolist()}) > 1


def test_cropped_loses_only_padding() -> None:
    rows = torch.tensor([[5, END, PAD, PAD], [6, 7, END, PAD]])
    assert crop(rows).tolist() == [[5, END, PAD], [6, 7, END]]


def test_made_texts_are_of_known_words_and_new() -> None:
    made = Maker(AUXILIARY, 0)(500)
    assert {word for text in made for word in text.split()} <= set(WORDS)
    assert len(set(made) - set(AUXILIARY)) > 300
    assert all(1 <= len(text.split()) <= 6 for text in made)
    assert Maker(AUXILIARY, 0)(20) == Maker(AUXILIARY, 0)(20)


def test_edits_are_one_word_away() -> None:
    made = edits("bal, dem fir!", ["nar", "bel"], [1.0, 1.0], 60, random.Random(0))
    assert {"nar, dem fir!", "dem, bal fir!", "bal, dem fir?", "bal, fir!"} <= set(made)
    base = {"bal", "dem", "fir"}
    assert all(len(set(words_of(text)) ^ base) <= 2 for text in made)
    assert "bal, dem fir!" not in made
    assert edits("...", ["nar"], [1.0], 5, random.Random(0)) == []


def test_neighbours_are_the_nearest() -> None:
    encoder = Ordered()
    near = Neighbours(encoder.encode(AUXILIARY), AUXILIARY, 1)(encoder.encode(AUXILIARY[:5]))
    assert [row[0] for row in near] == AUXILIARY[:5]
