"""The auto-encoder learns what texts are about, and nothing where they are about nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from capelet.data.labels import Attribute
from capelet.defences import Settings, fit
from capelet.defences.autoencoder import WIDTH, WordBag, autoencode
from capelet.defences.fitting import Part, Schedule
from capelet.errors import DataError
from capelet.release import PrivateEncoder

SCHEDULE = Schedule(epochs=12, device="cpu")


def spoken(rows: int, mixed: bool = False) -> tuple[list[str], np.ndarray]:
    """Texts of twelve words of the subject's sixty (mixed: of any), and the subject."""
    random = np.random.default_rng(4)
    subject = random.integers(0, 2, rows)
    about = random.integers(0, 2, (rows, 12)) if mixed else np.tile(subject[:, None], 12)
    words = random.integers(0, 60, (rows, 12))
    texts = [
        " ".join(f"w{a}x{w}" for a, w in zip(*row, strict=True))
        for row in zip(about, words, strict=True)
    ]
    return texts, subject.astype(np.intp)


def part_of(texts: list[str], subject: np.ndarray) -> Part:
    rows = np.arange(len(texts))
    cut = len(rows) // 10
    task = Attribute("subject", subject, ("no", "yes"))
    return Part(np.zeros((len(rows), 3), dtype=np.float32), rows[cut:], rows[:cut], task, (), texts)


def reads(vectors: np.ndarray, subject: np.ndarray) -> float:
    from sklearn.linear_model import LogisticRegression

    half = len(vectors) // 2
    model = LogisticRegression(max_iter=500).fit(vectors[:half], subject[:half])
    return float(model.score(vectors[half:], subject[half:]))


@pytest.fixture(scope="module")
def planted() -> tuple[list[str], np.ndarray]:
    return spoken(800)


def test_what_texts_are_about_is_in_the_hidden_vector(
    planted: tuple[list[str], np.ndarray],
) -> None:
    texts, subject = planted
    made = autoencode(part_of(texts, subject), SCHEDULE)
    assert made.dimension == WIDTH and len(made.words) == 120
    vectors = made.encode(texts)
    assert reads(vectors, subject) > 0.95
    # It was learnt, without a label: the few strongest directions are the subjects.
    strongest = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)[0][:, :2]
    assert reads(strongest, subject) > 0.95
    mixed, other = spoken(800, mixed=True)
    assert reads(autoencode(part_of(mixed, other), SCHEDULE).encode(mixed), other) < 0.62


def test_the_same_seed_gives_the_same_encoder(planted: tuple[list[str], np.ndarray]) -> None:
    short = replace(SCHEDULE, epochs=2)
    part = part_of(*planted)
    first = autoencode(part, short)
    assert autoencode(part, short).fingerprint == first.fingerprint
    assert autoencode(part, replace(short, seed=1)).fingerprint != first.fingerprint


def test_words_of_rows_held_back_are_not_learnt(planted: tuple[list[str], np.ndarray]) -> None:
    texts, subject = list(planted[0]), planted[1]
    texts[:80] = [f"{text} tuningword" for text in texts[:80]]
    made = autoencode(part_of(texts, subject), replace(SCHEDULE, epochs=1))
    assert "tuningword" not in made.words


def test_the_method_is_an_encoder_and_a_map_for_the_task(
    planted: tuple[list[str], np.ndarray],
) -> None:
    texts, subject = planted
    part = part_of(texts, subject)
    made = fit("ae", part, Settings(schedule=SCHEDULE))
    assert made.encoder is not None and made.outcome.map.width == WIDTH
    released = PrivateEncoder(made.encoder, *made.steps).release(texts).vectors
    assert released.shape == (len(texts), 64) and reads(released, subject) > 0.95
    with pytest.raises(DataError, match="only vectors"):
        fit("ae", replace(part, texts=None), Settings(schedule=SCHEDULE))


def test_a_bag_is_the_mean_of_its_words() -> None:
    import torch

    bag: Any = WordBag(["a b b", "", "c a"], ["a", "b", "c"])
    table = bag.table.detach()
    made = bag(torch.tensor([2, 1, 0])).detach()
    wanted = torch.stack(
        [(table[2] + table[0]) / 2, torch.zeros(WIDTH), (table[0] + 2 * table[1]) / 3]
    )
    torch.testing.assert_close(made, wanted)
    words, place = bag.words(torch.tensor([1, 2]))
    assert words.tolist() == [2, 0] and place.tolist() == [1, 1]
