"""A dual encoder learns what follows what; under λ fresh attackers read less of it."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capelet.attacks.inversion.blackbox import MultiLabel
from capelet.attacks.inversion.word_sets import Vocabulary, compare, most_frequent
from capelet.defences.contrastive import Contrastive, Dual, Pairs, Sentences
from capelet.defences.contrastive.adversaries import Authors, Words, count_words
from capelet.defences.contrastive.pairs import batches
from capelet.encoders.dual import DualEncoder
from capelet.encoders.dual_networks import build
from capelet.encoders.model_folder import DUAL_ENCODER, kind_of
from capelet.errors import CapeletError, DataError, EncoderError
from capelet.evaluation.authorship import Authorship
from capelet.interfaces import Encoder
from capelet.training import checkpoint

TOPICS, WRITERS, FEW = 12, 8, 10
SMALL = {
    "width": 64,
    "layers": 1,
    "dimension": 32,
    "vocabulary": 400,
    "epochs": 8,
    "batch": 128,
    "rate": 3e-3,
    "asked": 200,
    "renew": 50,
}


def planted(posts: int, seed: int) -> tuple[list[str], list[str], list[int]]:
    """Posts about one topic each (what follows shares it), with a habit word of the writer's own.

    Three sentences a post; a sentence has three words of its topic, two of anything, and the habit.
    """
    random = np.random.default_rng(seed)
    texts, authors, topics = [], [], []
    for _ in range(posts):
        topic, writer = int(random.integers(TOPICS)), int(random.integers(WRITERS))
        pieces = []
        for _ in range(3):
            words = [f"t{topic}x{k}" for k in random.choice(FEW, 3, replace=False)]
            words += [f"any{k}" for k in random.choice(40, 2, replace=False)]
            words.append(f"habit{writer}v{random.integers(2)}")
            pieces.append(" ".join(random.permutation(words)))
        texts.append(". ".join(pieces) + ".")
        authors.append(f"w{writer}")
        topics.append(topic)
    return texts, authors, topics


@cache
def trained(network: str, words: float, authors: float, negatives: str = "any") -> Dual:
    texts, names, _ = planted(800, 0)
    settings = Contrastive(
        network=network,
        lambda_words=words,
        lambda_authors=authors,
        negatives=negatives,
        device="cpu",
        **SMALL,  # type: ignore[arg-type]
    )
    return settings.fit(Sentences.of(texts, names))


def sentences(seed: int, posts: int = 900) -> tuple[list[str], list[str], np.ndarray]:
    """One sentence of each of many new posts, with its writer and topic."""
    texts, names, topics = planted(posts, seed)
    return [text.split(". ")[0] for text in texts], names, np.array(topics)


def author_read(dual: Dual) -> float:
    texts, names, _ = sentences(1)
    rows = Authorship(shots=30, writers=WRITERS, tests=40, seeds=1).measure(
        dual.encode(texts), names
    )
    return next(row.value for row in rows if row.kind == "authorship" and row.metric == "top1")


def topic_read(dual: Dual) -> float:
    from sklearn.linear_model import LogisticRegression

    texts, _, topics = sentences(2)
    vectors = dual.encode(texts)
    model = LogisticRegression(max_iter=500, C=30).fit(vectors[:500], topics[:500])
    return float(model.score(vectors[500:], topics[500:]))


def words_read(dual: Dual) -> tuple[float, float]:
    """F1 of a fresh attacker on new sentences, and that of the blind guess."""
    own, victims = sentences(3, 1200)[0], sentences(4, 300)[0]
    vocabulary = Vocabulary.of(own)
    sets, truth = vocabulary.sets(own), vocabulary.sets(victims)
    attack = MultiLabel(width=128, depth=1, epochs=12, batch=128, dropout=0.1, device="cpu")
    guess = attack.fit(dual.encode(own), sets, vocabulary).predict(dual.encode(victims))
    blind = most_frequent(sets, len(vocabulary), len(truth))
    return (
        float(compare(guess, truth, len(vocabulary)).f1.mean()),
        float(compare(blind, truth, len(vocabulary)).f1.mean()),
    )


@pytest.mark.parametrize("network", ["transformer", "lstm"])
def test_a_plain_encoder_keeps_the_topic_and_betrays_the_writer(network: str) -> None:
    dual = trained(network, 0, 0)
    history = dual.training["history"]
    assert history[-1]["contrast"] < history[0]["contrast"] - 0.5
    assert topic_read(dual) > 0.8
    assert author_read(dual) > 0.5  # chance is 0.125: the habit follows from sentence to sentence


@pytest.mark.parametrize("network", ["transformer", "lstm"])
def test_lambda_hides_the_writer_from_a_fresh_attacker_and_keeps_the_topic(network: str) -> None:
    hidden = trained(network, 0, 10, "author")
    assert author_read(hidden) < 0.5 * author_read(trained(network, 0, 0))
    assert topic_read(hidden) > 0.8


def test_same_author_negatives_alone_leave_the_writer_no_use() -> None:
    assert author_read(trained("transformer", 0, 0, "author")) < 0.8 * author_read(
        trained("transformer", 0, 0)
    )


def test_lambda_hides_words_from_a_fresh_attacker_and_keeps_the_topic() -> None:
    plain, blind = words_read(trained("transformer", 0, 0))
    hidden, _ = words_read(trained("transformer", 8, 0))
    assert plain > blind + 0.1
    # Whoever knows the topic can name its ten words: about 0.37 here, which must stay readable.
    assert hidden < 0.93 * plain
    assert topic_read(trained("transformer", 8, 0)) > 0.7


def test_a_saved_encoder_is_an_encoder(tmp_path: Path) -> None:
    dual = trained("lstm", 0, 0)
    folder = dual.save(tmp_path / "dual")
    assert kind_of(folder) == DUAL_ENCODER
    assert sorted(p.name for p in folder.iterdir()) == [
        "dual.json",
        "dual.safetensors",
        "manifest.json",
    ]
    encoder = DualEncoder(str(folder))
    assert isinstance(encoder, Encoder)
    texts = ["t1x1 any3 habit0v1", "", "quite unknown", "t1x1 " * 200, "half \ud83d"]
    vectors = encoder.encode(texts)
    assert vectors.dtype == np.float32 and vectors.shape == (5, encoder.dimension)
    np.testing.assert_allclose(vectors, dual.encode(texts), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [1, 0, 1, 1, 1], atol=1e-5)
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    np.testing.assert_allclose(vectors, alone, atol=1e-5)
    assert encoder.truncated(texts).tolist() == [False, False, False, True, False]
    again = pickle.loads(pickle.dumps(encoder))
    assert again.fingerprint == encoder.fingerprint and len(encoder.fingerprint) == 64
    assert encoder.encode([]).shape == (0, encoder.dimension)
    words, table = encoder.token_table()
    assert len(words) == len(table) and "any3" in words
    assert encoder.training["pairs"] == dual.training["pairs"]


def test_a_transformer_vector_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    network = build("transformer", 50, 64, 2, 16).eval()
    tokens = torch.tensor([[3, 4, 5, 0, 0], [6, 7, 8, 9, 10], [0, 0, 0, 0, 0]])
    with torch.no_grad():
        together, alone = network(tokens), network(tokens[:1, :3])
    assert torch.allclose(together[:1], alone, atol=1e-5)
    assert not together[2].any()


@pytest.mark.parametrize("broken", ["weights", "schema", "json", "missing"])
def test_a_broken_folder_is_refused_in_a_sentence(tmp_path: Path, broken: str) -> None:
    folder = trained("lstm", 0, 0).save(tmp_path / "dual")
    about = folder / "dual.json"
    if broken == "weights":
        (folder / "dual.safetensors").write_bytes(b"other")
    elif broken == "schema":
        manifest = folder / "manifest.json"
        manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 9'))
    elif broken == "json":
        about.write_text("{")
    else:
        (folder / "dual.safetensors").unlink()
    with pytest.raises(EncoderError):
        DualEncoder(str(folder)).encode(["a text"])


def test_bad_settings_are_refused_before_any_work() -> None:
    texts, names, _ = planted(120, 0)
    known = Sentences.of(texts, names, fewest=2)
    wrong: list[dict[str, Any]] = [
        {"network": "gru"},
        {"negatives": "some"},
        {"lambda_words": -1},
        {"lambda_authors": float("nan")},
        {"epochs": 0},
        {"lambda_words": 1, "adversaries": 0},
        {"width": 67},
    ]
    for settings in wrong:
        with pytest.raises(CapeletError):
            Contrastive(**settings).fit(known)
    with pytest.raises(DataError, match="two authors"):
        Contrastive(lambda_authors=1).fit(Sentences.of(texts))
    with pytest.raises(DataError, match="pairs"):
        Contrastive().fit(Sentences.of(texts[:5]))
    with pytest.raises(DataError, match="do not match"):
        Sentences.of(texts, names[:-1])


def test_pairs_stay_within_a_post_and_batches_hold_each_pair_once() -> None:
    texts, names, _ = planted(300, 5)
    pairs = Pairs.of(Sentences.of(texts, names), 100, 20)
    assert (pairs.posts[pairs.first] == pairs.posts[pairs.first + 1]).all()
    assert len(pairs) == 600
    for together in (1, 32):
        made = batches(pairs, 100, together, np.random.default_rng(0))
        rows = np.concatenate(made)
        assert len(np.unique(rows)) == len(rows) == 600
    authors = pairs.authors[pairs.first[made[0]]]
    assert len(np.unique(authors)) < WRITERS  # few authors share a batch, each with many pairs


def test_adversaries_read_a_planted_secret_and_nothing_in_noise() -> None:
    random = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    vectors = torch.randn(1024, 16, generator=random)
    target = (vectors[:, :1] > 0).long().squeeze(1)
    for truth, low, high in ((target, 0.5, 2.0), (target[torch.randperm(1024)], -0.1, 0.1)):
        made = Authors(16, np.array([500, 524]), readers=1, renew=0)
        for step in range(60):
            made.learn(vectors, truth, step)
        fresh = torch.randn(1024, 16, generator=random)
        answer = (fresh[:, 0] > 0).long() if high > 1 else torch.randint(2, (1024,))
        assert low <= float(made.read(fresh, answer).detach()) <= high


def test_unknown_authors_do_not_count() -> None:
    torch.manual_seed(0)
    made = Authors(8, np.array([5, 5]), readers=1, renew=0)
    vectors = torch.randn(64, 8, requires_grad=True)
    read = made.read(vectors, torch.full((64,), -1))
    assert float(read.detach()) == 0.0


def test_the_word_adversary_asks_for_words_not_signs() -> None:
    tokens = np.array([[2, 3, 3, 0], [2, 4, 0, 0], [2, 5, 0, 0]])
    numbers, shares = count_words(tokens, ["<pad>", "<unk>", ".", "b", "c", "d"], 2)
    assert numbers.tolist() == [3, 4]
    np.testing.assert_allclose(shares, [1 / 3, 1 / 3])
    made = Words(4, numbers, shares, 1, 0, 6)
    assert made.target(torch.from_numpy(tokens)).tolist() == [[1, 0], [0, 1], [0, 0]]
    blind = made.share(
        torch.logit(torch.tensor(shares).float()).expand(3, 2),
        made.target(torch.from_numpy(tokens)),
    )
    assert abs(float(blind) - 1) < 1e-5


def test_known_word_vectors_are_begun_from() -> None:
    texts, names, _ = planted(120, 0)
    small = {**SMALL, "epochs": 1}
    training = Contrastive(device="cpu", **small)  # type: ignore[arg-type]
    known = [f"any{k}" for k in range(40)]
    vectors = np.random.default_rng(0).normal(size=(40, 10)).astype(np.float32)
    assert training.fit(Sentences.of(texts, names), (known, vectors)).encode(["any1"]).any()
    with pytest.raises(DataError, match="none of the words"):
        training.fit(Sentences.of(texts, names), (["elsewhere"], vectors[:1]))


@pytest.mark.parametrize(("every", "ends"), [(1, False), (5, True)])
def test_steps_without_a_finite_slope_are_left_out_and_many_are_refused(
    every: int, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def flat(self: Words, vectors: torch.Tensor, held: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        slope = torch.sqrt(0 * vectors.sum())  # the value is 0, the gradient is not a number
        return slope if len(calls) % every == 0 else 0 * vectors.sum()

    monkeypatch.setattr(Words, "read", flat)
    texts, authors, _ = planted(300, 5)
    settings = Contrastive(**{**SMALL, "epochs": 2}, lambda_words=1.0, device="cpu")
    if not ends:
        with pytest.raises(CapeletError, match="diverged"):
            settings.fit(Sentences.of(texts, authors))
        return
    dual = settings.fit(Sentences.of(texts, authors))
    assert np.isfinite(dual.encode(texts[:5])).all()
    assert any(epoch["left_out"] > 0 for epoch in dual.training["history"])


class Killed(Exception):
    """Stands for a process that was killed."""


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_a_killed_training_goes_on_to_the_same_encoder(
    strength: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With adversaries that are reset on the way: their random numbers belong to a checkpoint."""
    monkeypatch.setattr(checkpoint, "INTERVAL", 0.0)
    texts, names, _ = planted(150, 0)
    known = Sentences.of(texts, names, fewest=2)
    small = {**SMALL, "epochs": 4, "batch": 64, "renew": 9}
    small |= {"width": 32, "dimension": 12, "asked": 40}

    def training(words: float) -> Contrastive:
        return Contrastive(
            device="cpu",
            lambda_words=words,
            lambda_authors=strength,
            **small,  # type: ignore[arg-type]
        )

    whole = training(strength).fit(known)
    total: list[int] = []

    def dies(what: str, done: int, all_steps: int) -> None:
        total.append(all_steps)
        if done > all_steps // 2:
            raise Killed

    with pytest.raises(Killed):
        training(strength).fit(known, None, dies, tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    other = training(strength + 1).fit(known, None, checkpoints=tmp_path)  # begins from the start
    assert file.exists() and len(other.training["history"]) == 4
    seen: list[int] = []
    resumed = training(strength).fit(
        known, None, lambda what, done, all_steps: seen.append(done), tmp_path
    )
    assert seen[0] == total[0] // 2 + 1
    np.testing.assert_array_equal(resumed.encode(texts), whole.encode(texts))
    assert resumed.training["history"] == whole.training["history"]
    assert not list(tmp_path.iterdir())


def test_training_repeats_itself_with_its_seed() -> None:
    texts, names, _ = planted(150, 0)
    small = {**SMALL, "epochs": 2}
    made = [
        Contrastive(device="cpu", lambda_words=1, **small).fit(Sentences.of(texts, names))  # type: ignore[arg-type]
        for _ in range(2)
    ]
    np.testing.assert_allclose(made[0].encode(texts[:5]), made[1].encode(texts[:5]), atol=1e-5)
