"""Training: it learns, it repeats, it resumes exactly, and it refuses what it cannot use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capelet.errors import CapeletError, DataError, OutputError
from capelet.language.learners import PrivateNextWord, author_rows, batches_of
from capelet.language.methods import Adversarial, Dpsgd, Plain, Triplet
from capelet.language.model import Network, Scorer, build
from capelet.language.schedule import Training
from capelet.language.vocabulary import Samples, Vocabulary
from capelet.training.loop import Position, TrainingError

Written = tuple[list[str], list[str]]
METHODS = [Plain(), Adversarial(1.0, hidden=32), Triplet(1.0), Dpsgd(0.5, seed_noise=1)]


TOPICS = 6


@pytest.fixture(scope="module")
def written() -> Written:
    """600 invented texts by 12 authors over about 150 words, with a grammar to be learnt."""
    random = np.random.default_rng(3)
    names = [f"{a}{b}" for a in "bdfglmnprs" for b in ("ako", "eli", "omu", "ita", "une")]
    verbs = [f"{a}{b}" for a in "chkstvw" for b in ("ades", "ills", "oves")]
    things = [f"{a}{b}{c}" for a in "bglnp" for b in "aeiou" for c in ("rth", "nd", "st")]
    texts, authors = [], []
    for row in range(600):
        author = row % 12
        own = things[5 * (author % TOPICS) : 5 * (author % TOPICS) + 20]
        parts = [
            "the",
            names[int(random.integers(len(names)))],
            verbs[int(random.integers(len(verbs)))],
            "a",
            own[int(random.integers(len(own)))],
            "and",
            things[int(random.integers(len(things)))],
        ]
        texts.append(" ".join(parts))
        authors.append(f"author{author:02d}")
    return texts, authors


def prepared(written: Written, rows: int = 240) -> tuple[Vocabulary, Samples]:
    texts, authors = written[0][:rows], written[1][:rows]
    words = Vocabulary.of(texts, 80)
    return words, Samples.of(texts, authors, words, 8)


def small(words: Vocabulary, kind: str = "lstm") -> Network:
    return build(kind, len(words), width=24, layers=2, length=8, seed=1)


def plan(method: Any = None, **options: Any) -> Training:
    settings = {"epochs": 2, "batch": 40, "rate": 5e-3, "per_author": 4, "device": "cpu"}
    return Training(method or Plain(), **{**settings, **options})


def weights(network: Network) -> np.ndarray:
    return torch.cat([weight.detach().flatten() for weight in network.parameters()]).numpy()


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_a_model_learns_the_grammar(written: Written, kind: str) -> None:
    words, samples = prepared(written, 480)
    network = small(words, kind)
    test = words.encode(written[0][480:], 8)
    before = Scorer(network, "cpu").perplexity(test)
    plan(epochs=8).fit(network, samples)
    after = Scorer(network, "cpu").perplexity(test)
    assert before > 70
    assert after < 16


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_equal_seeds_give_equal_models_and_others_do_not(written: Written, method: Any) -> None:
    words, samples = prepared(written)
    made = [
        weights(plan(method, seed=seed, epochs=1).fit(small(words), samples).network)
        for seed in (3, 3, 4)
    ]
    assert np.array_equal(made[0], made[1])
    if not isinstance(method, Dpsgd):  # whose batches follow the seed of its noise
        assert not np.array_equal(made[0], made[2])


class Interrupt(Exception):
    pass


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_an_interrupted_training_goes_on_exactly(
    written: Written, method: Any, tmp_path: Path
) -> None:
    words, samples = prepared(written)
    validation = samples.tokens[:40]
    whole = plan(method, epochs=3).fit(small(words), samples, validation)

    def interrupt(step: int, network: Network) -> None:
        if step == 15:  # in the third epoch of six steps
            raise Interrupt

    kept = tmp_path / "checkpoint.safetensors"
    with pytest.raises(Interrupt):
        plan(method, epochs=3).fit(
            small(words), samples, validation, checkpoint=kept, watch=interrupt
        )
    resumed = plan(method, epochs=3).fit(small(words), samples, validation, checkpoint=kept)
    assert np.array_equal(weights(whole.network), weights(resumed.network))
    assert [row["epoch"] for row in resumed.history] == [1, 2, 3]
    assert kept.stat().st_mode & 0o077 == 0


def test_a_checkpoint_of_other_settings_or_data_is_refused(
    written: Written, tmp_path: Path
) -> None:
    words, samples = prepared(written)
    kept = tmp_path / "checkpoint.safetensors"
    plan(epochs=1).fit(small(words), samples, checkpoint=kept)
    with pytest.raises(OutputError, match="other settings or data"):
        plan(epochs=2, rate=1e-4).fit(small(words), samples, checkpoint=kept)
    fewer = Samples(samples.tokens[1:], samples.authors[1:], samples.names)
    with pytest.raises(OutputError, match="other settings or data"):
        plan(epochs=2).fit(small(words), fewer, checkpoint=kept)
    kept.write_bytes(b"no checkpoint")
    with pytest.raises(OutputError, match="is not a checkpoint"):
        plan().fit(small(words), samples, checkpoint=kept)


def test_a_checkpoint_with_more_epochs_than_asked_for_is_refused(
    written: Written, tmp_path: Path
) -> None:
    """The ε of two epochs would be stated for the noise of three."""
    words, samples = prepared(written)
    kept = tmp_path / "checkpoint.safetensors"
    plan(Dpsgd(0.5), epochs=3).fit(small(words), samples, checkpoint=kept)
    with pytest.raises(OutputError, match="3 epochs already, and 2 were asked for"):
        plan(Dpsgd(0.5), epochs=2).fit(small(words), samples, checkpoint=kept)
    longer = plan(Dpsgd(0.5), epochs=4).fit(small(words), samples, checkpoint=kept)
    assert longer.steps == 4 * 6 and len(longer.history) == 4


@pytest.mark.parametrize("batching", ["uniform", "author", "grouped"])
def test_every_sample_is_in_one_batch_of_an_epoch(batching: str) -> None:
    authors = np.random.default_rng(0).integers(7, size=203).astype(np.intp)
    rows = list(batches_of(authors, batching, 20, 5, seed=1, epoch=0))
    assert sorted(np.concatenate(rows).tolist()) == list(range(203))
    again = list(batches_of(authors, batching, 20, 5, seed=1, epoch=0))
    assert all(np.array_equal(a, b) for a, b in zip(rows, again, strict=True))
    people = [len(set(authors[batch].tolist())) for batch in rows]
    if batching == "author":
        assert set(people) == {1}
    if batching == "grouped":
        pairs = [np.bincount(authors[batch]).max() for batch in rows[:-1]]
        assert min(pairs) >= 2 and min(people[:-1]) >= 2


SIGNS = ["mirth", "pond", "quill", "raft", "sloop", "tarn"]


def signed(written: Written) -> tuple[Vocabulary, Samples]:
    """Texts that begin and end with a word of their author: a state must carry it to the end."""
    people = [SIGNS[row % 6] for row in range(len(written[0]))]
    texts = [f"{sign} {text} {sign}" for sign, text in zip(people, written[0], strict=True)]
    words = Vocabulary.of(texts, 90)
    return words, Samples.of(texts, people, words, 9)


def test_the_triplet_hides_the_author_from_a_fresh_probe(written: Written) -> None:
    from sklearn.linear_model import LogisticRegression

    words, samples = signed(written)
    fit, score = np.arange(600) < 400, np.arange(600) >= 400

    def probe(chosen: Any) -> float:
        network = build("lstm", len(words), width=24, layers=2, length=9, seed=1)
        plan(chosen, epochs=30, batch=48, rate=1e-2).fit(network, samples)
        with torch.no_grad():
            states = network.hidden(torch.from_numpy(samples.tokens[:, :-1]))[:, 4].numpy()
        model = LogisticRegression(max_iter=1000, C=100).fit(states[fit], samples.authors[fit])
        return float((model.predict(states[score]) == samples.authors[score]).mean())

    plain, hidden = probe(Plain()), probe(Triplet(10.0))
    assert plain > 0.5 and hidden < 0.35  # chance: 1/6


def test_the_adversarial_penalty_blinds_its_discriminator() -> None:
    from capelet.language.learners import Discrimination, NextWord

    people = [SIGNS[row % 6] for row in range(600)]
    texts = [f"{sign} {'bdfg'[row // 6 % 4]}ako {sign}" for row, sign in enumerate(people)]
    words = Vocabulary.of(texts, 10)
    samples = Samples.of(texts, people, words, 3)

    def seen(strength: float) -> float:
        network = build("lstm", len(words), width=24, layers=1, length=3, seed=1)
        settings = plan(Adversarial(strength, hidden=64, rate=5e-3), batch=48, rate=1e-2)
        learner, step = NextWord(settings, network, samples), 0
        for epoch in range(20):
            for place, batch in enumerate(learner.batches(epoch)):
                learner.step(batch, Position(epoch, place, step))
                step += 1
        assert isinstance(learner.penalty, Discrimination)
        with torch.no_grad():
            states = network.hidden(torch.from_numpy(samples.tokens[:, :-1]))[:, 1:]
            said = learner.penalty.discriminator(states).argmax(2).numpy()
        return float((said == samples.authors[:, None]).mean())

    assert seen(0.0) > 0.95  # chance: 1/6
    assert seen(5.0) < 0.7


def test_the_best_epoch_is_kept_but_dp_sgd_keeps_the_last(written: Written) -> None:
    words, samples = prepared(written, 60)
    validation = words.encode(written[0][480:], 8)
    best = plan(epochs=40, rate=2e-2).fit(small(words), samples, validation)
    said = [row["perplexity"] for row in best.history]
    assert min(said) < said[-1]
    assert np.isclose(Scorer(best.network, "cpu").perplexity(validation), min(said))
    last = plan(Dpsgd(0.0, clip=10.0, seed_noise=0), epochs=3).fit(
        small(words), samples, validation
    )
    last_said = [row["perplexity"] for row in last.history]
    assert np.isclose(Scorer(last.network, "cpu").perplexity(validation), last_said[-1])


def test_divergence_is_noticed_when_it_happens_not_at_the_end(written: Written) -> None:
    words, samples = prepared(written)
    steps: list[int] = []
    with pytest.raises(TrainingError, match=r"has diverged in epoch 1 .*smaller rate or strength"):
        plan(epochs=50, rate=1e18).fit(
            small(words),
            samples,
            samples.tokens[:40],
            watch=lambda step, network: steps.append(step),
        )
    assert steps[-1] == 6  # of 300
    calm = plan(epochs=2).fit(small(words), samples, samples.tokens[:40])
    assert calm.steps == 12  # the control


def test_dp_sgd_that_diverges_is_noticed_though_it_tells_no_loss(written: Written) -> None:
    words, samples = prepared(written)

    def spoil(step: int, network: Network) -> None:
        if step == 8:
            with torch.no_grad():
                network.bias[0] = torch.inf

    private = plan(Dpsgd(0.5, seed_noise=1), epochs=50)
    with pytest.raises(TrainingError, match="has diverged in epoch 2"):
        private.fit(small(words), samples, watch=spoil)
    history = replace(private, epochs=2).fit(small(words), samples).history
    assert all("loss" not in row for row in history)  # the control, which tells nothing


def test_the_paper_s_second_pass_trains_too(written: Written) -> None:
    words, samples = prepared(written)
    done = plan(Triplet(1.0, pairs="second"), epochs=1).fit(small(words), samples)
    assert np.isfinite(weights(done.network)).all()


def test_authors_that_teach_nothing_are_refused(written: Written) -> None:
    words, samples = prepared(written)
    alone = replace(samples, authors=np.zeros(len(samples), dtype=np.intp), names=("one",))
    with pytest.raises(DataError, match="needs at least two; there is one"):
        plan(Triplet()).fit(small(words), alone)
    once = samples.authors.copy()
    once[0] = 12
    single = replace(samples, authors=once, names=(*samples.names, "single"))
    with pytest.raises(DataError, match="1 of 13 authors have only one sample"):
        plan(Adversarial()).fit(small(words), single)
    plan(epochs=1).fit(small(words), single)  # plain training does not care


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batching": "authors"}, "did you mean 'author'"),
        ({"epochs": 0}, "epochs is 0"),
        ({"method": Triplet(position="first")}, "no position 'first'"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CapeletError, match=said):
        plan(**options)


def test_settings_of_dp_sgd_that_cannot_be_are_refused() -> None:
    with pytest.raises(CapeletError, match="there is no unit 'authors'; did you mean 'author'"):
        Dpsgd(1.0, unit="authors")
    with pytest.raises(CapeletError, match="texts_per_author is 0"):
        Dpsgd(1.0, unit="author", texts_per_author=0)
    with pytest.raises(CapeletError, match="noise_multiplier"):
        Dpsgd(float("nan"))


# ---- authors as the unit -------------------------------------------------------------------------

BY_AUTHOR = Dpsgd(0.5, seed_noise=1, unit="author", texts_per_author=5)


def learner_by_author(written: Written, method: Dpsgd = BY_AUTHOR) -> PrivateNextWord:
    words, samples = prepared(written)
    return PrivateNextWord(plan(method, batch=3), small(words), samples)


def test_an_author_has_at_most_so_many_texts_chosen_by_them_alone(written: Written) -> None:
    _, samples = prepared(written)
    rows = author_rows(samples, 5, seed=1)
    assert rows.shape == (12, 5) and (rows >= 0).all()  # of 20 texts each
    for author, own in enumerate(rows):
        assert set(samples.authors[own]) == {author} and len(set(own)) == 5
    # Without the first author, and in another order, every other one keeps the same texts.
    order = np.random.default_rng(0).permutation(np.flatnonzero(samples.authors != 0))
    fewer = Samples(samples.tokens[order], samples.authors[order] - 1, samples.names[1:])
    for before, after in zip(rows[1:], author_rows(fewer, 5, seed=1), strict=True):
        ours, theirs = samples.tokens[before], fewer.tokens[after]
        assert np.array_equal(np.sort(ours, axis=0), np.sort(theirs, axis=0))
    assert not np.array_equal(rows, author_rows(samples, 5, seed=2))  # the control
    more = author_rows(samples, 30, seed=1)
    assert (more[:, 20:] == -1).all() and (more[:, :20] >= 0).all()


def test_copies_of_a_text_count_as_copies(written: Written) -> None:
    _, samples = prepared(written)
    same = replace(samples, tokens=np.repeat(samples.tokens[:1], len(samples), axis=0))
    assert [len(set(rows)) for rows in author_rows(same, 2, seed=0)] == [2] * 12


def test_authors_are_drawn_not_texts(written: Written) -> None:
    learner = learner_by_author(written)
    assert learner.units.shape[:2] == (12, 5) and learner.steps_per_epoch == 4
    batches = [batch for epoch in range(200) for batch in learner.batches(epoch)]
    sizes = np.array([len(batch) for batch in batches])
    assert max(batch.max() for batch in batches if len(batch)) == 11
    # Binomial(12, 3/12): mean 3, variance 2.25.
    assert abs(sizes.mean() - 3) < 5 * np.sqrt(2.25 / 800)
    assert 0.8 < sizes.var() / 2.25 < 1.25


def test_a_noised_number_of_authors_decides_rate_steps_and_divisor(written: Written) -> None:
    learner = learner_by_author(written, replace(BY_AUTHOR, units=24))
    assert learner.steps_per_epoch == 8
    sizes = [len(batch) for epoch in range(100) for batch in learner.batches(epoch)]
    assert abs(np.mean(sizes) - 12 * 3 / 24) < 5 * np.sqrt(12 * 0.125 * 0.875 / 800)


def test_the_noise_of_a_step_is_that_of_one_author(written: Written) -> None:
    """σ·C on the sum, over the expected number of authors; nothing scales with their texts."""
    method = replace(BY_AUTHOR, noise_multiplier=2.0, clip=0.5)
    learner = learner_by_author(written, method)
    list(learner.batches(0))
    nobody = np.zeros(0, dtype=np.intp)
    learner.step(nobody, Position(0, 0, 0))
    gradients = [weight.grad.flatten() for weight in learner.network.parameters()]
    noise = torch.cat(gradients).double()
    wanted = 2.0 * 0.5 / 3
    assert abs(noise.std().item() / wanted - 1) < 5 / np.sqrt(2 * len(noise))


def test_a_model_trains_author_by_author_and_resumes(written: Written, tmp_path: Path) -> None:
    words, samples = prepared(written)
    whole = plan(BY_AUTHOR, epochs=3, batch=3).fit(small(words), samples)
    file = tmp_path / "checkpoint.safetensors"
    plan(BY_AUTHOR, epochs=1, batch=3).fit(small(words), samples, checkpoint=file)
    resumed = plan(BY_AUTHOR, epochs=3, batch=3).fit(small(words), samples, checkpoint=file)
    assert np.array_equal(weights(whole.network), weights(resumed.network))
    other = replace(BY_AUTHOR, texts_per_author=4)
    with pytest.raises(OutputError, match="other settings or data"):
        plan(other, epochs=4, batch=3).fit(small(words), samples, checkpoint=file)


def test_one_author_alone_cannot_be_the_unit(written: Written) -> None:
    words, samples = prepared(written)
    alone = replace(samples, authors=np.zeros(len(samples), dtype=np.intp), names=("one",))
    with pytest.raises(DataError, match="'author' hides authors among each other"):
        plan(BY_AUTHOR).fit(small(words), alone)
    plan(Dpsgd(0.5), epochs=1).fit(small(words), alone)  # texts hide among texts
