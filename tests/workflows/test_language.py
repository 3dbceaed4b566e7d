"""A language model is trained into a folder and attacked there, by the settings and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import CapeletError, DataError
from capelet.evaluation.extraction import AttackSettings, TrainingTexts, attack_model
from capelet.language.folders import LanguageModel
from capelet.question import CanaryCounts, LanguageNetwork, LanguageSchedule, Mitigation
from capelet.workflows.language import (
    LanguageSettings,
    train_model,
)

NAMES = [f"{a}{b}" for a in "bdfglmnprs" for b in ("ako", "eli", "omu", "ita", "une")]
SMALL = LanguageSettings(
    LanguageNetwork("lstm", 50, 16, 1, 8),
    LanguageSchedule(epochs=2, batch=40, rate=5e-3, device="cpu"),
    secrets=CanaryCounts((1, 20), canary_authors=3),
)
ATTACK = AttackSettings(samples=1100, device="cpu")


@pytest.fixture(scope="module")
def texts() -> TrainingTexts:
    random = np.random.default_rng(3)
    rows = [" ".join(random.choice(NAMES, 7)) for _ in range(700)]
    gender = [("f", "m", None)[row % 3] for row in range(700)]
    return TrainingTexts(rows, [f"author{row % 12:02d}" for row in range(700)], {"gender": gender})


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(autouse=True)
def one_owner(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests here are run by the user who trained the model of `folder`."""
    monkeypatch.setenv("CAPELET_STATE", str(state))


@pytest.fixture(scope="module")
def folder(texts: TrainingTexts, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("language") / "model"
    seen: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPELET_STATE", str(state))
        model = train_model(
            texts.texts, texts.authors, out, SMALL, on_epoch=lambda row: seen.append(row["epoch"])
        )
    assert len(seen) == 2 and len(model.canaries) == 3 * 3  # two levels and the control
    return out


def test_a_model_is_trained_by_its_settings(folder: Path, texts: TrainingTexts) -> None:
    model = LanguageModel.load(folder)
    training = model.training
    assert (training["epochs"], training["batch"], training["rate"]) == (2, 40, 5e-3)
    assert training["method"]["name"] == "none" and training["privacy"] is None
    assert model.network.sizes["width"] == 16 and len(model.vocabulary.words) == 54
    assert np.isfinite(training["test_perplexity"])
    assert not (folder / "checkpoint.safetensors").exists()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_an_attack_finds_more_with_the_texts(folder: Path, texts: TrainingTexts) -> None:
    alone = attack_model(folder, settings=ATTACK)
    assert {row.kind for row in alone.rows} == {"extraction", "extraction-null"}
    whole = attack_model(folder, texts, ATTACK, baseline=folder)
    kinds = {row.kind for row in whole.rows}
    assert {"utility", "membership", "fairness"} <= kinds
    assert {row.subgroup for row in whole.rows if row.kind == "fairness"} == {
        "author size=largest",
        "author size=smallest",
        "gender=f",
        "gender=m",
    }
    # A model against itself costs nobody anything.
    ratios = whole.select(kind="fairness", metric="perplexity_ratio")
    assert ratios and all(row.value == pytest.approx(1.0) for row in ratios)
    assert whole.recipe["batch"] == 40


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (replace(SMALL, mitigation=Mitigation("dpsgdd")), "did you mean 'dpsgd'"),
        (replace(SMALL, mitigation=Mitigation("none", epsilon=1.0)), "promises nothing"),
        (replace(SMALL, mitigation=Mitigation("triplet", position="first")), "no position"),
        (replace(SMALL, mitigation=Mitigation("dpsgd")), "epsilon or noise_multiplier"),
        (replace(SMALL, schedule=LanguageSchedule(perplexity=0.5)), "perplexity is 0.5"),
        # To stop where held-back texts say so is a look at them that no ε pays for.
        (
            replace(
                SMALL,
                mitigation=Mitigation("dpsgd", epsilon=8.0),
                schedule=LanguageSchedule(perplexity=50.0),
            ),
            "no epsilon covers",
        ),
        (replace(SMALL, model=LanguageNetwork(vocabulary=50, length=3)), "would be cut off"),
    ],
)
def test_settings_that_do_not_hold_are_refused_before_any_work(
    texts: TrainingTexts, tmp_path: Path, settings: LanguageSettings, sentence: str
) -> None:
    with pytest.raises(CapeletError, match=sentence):
        train_model(texts.texts, texts.authors, tmp_path / "model", settings)
    assert not (tmp_path / "model").exists()


def test_numbers_beyond_their_range_are_no_settings() -> None:
    with pytest.raises(CapeletError, match="batch= is 0; it must be at least 1"):
        LanguageSchedule(batch=0)


def test_canaries_and_hidden_authors_need_authors(texts: TrainingTexts, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="canaries belong to authors"):
        train_model(texts.texts, None, tmp_path, SMALL)
    hidden = replace(SMALL, secrets=CanaryCounts(), mitigation=Mitigation("triplet"))
    with pytest.raises(DataError, match="'triplet' hides authors"):
        train_model(texts.texts, None, tmp_path, hidden)


# ---- with a promise ------------------------------------------------------------------------------

PRIVATE = replace(
    SMALL,
    model=LanguageNetwork("lstm", NAMES, 16, 1, 8),
    mitigation=Mitigation("dpsgd", epsilon=8.0),
    secrets=CanaryCounts(),
)
BY_AUTHOR = replace(
    PRIVATE,
    schedule=replace(PRIVATE.schedule, batch=4),
    mitigation=Mitigation("dpsgd", epsilon=8.0, unit="author", texts_per_author=5),
)


def test_authors_are_promised_what_the_accountant_says(
    texts: TrainingTexts, tmp_path: Path
) -> None:
    from capelet.privacy.accounting import epsilon_of

    model = train_model(texts.texts, texts.authors, tmp_path / "model", BY_AUTHOR)
    promise, privacy = model.guarantee, model.training["privacy"]
    assert (promise.notion, promise.unit, promise.neighbours) == ("central", "author", "add-remove")
    assert promise.status == "proven" and 7.5 < promise.epsilon <= 8
    assert promise.delta <= 12**-1.1 and "at most 5 of them train" in promise.caveat
    assert privacy["rate"] == min(4, privacy["units"]) / privacy["units"]
    of_training = epsilon_of(
        privacy["noise_multiplier"], privacy["rate"], privacy["steps"], promise.delta
    )
    assert promise.epsilon == pytest.approx(of_training + privacy["count_epsilon"])
    assert LanguageModel.load(tmp_path / "model").guarantee == promise


@pytest.mark.parametrize(
    ("settings", "status", "caveat"),
    [
        (PRIVATE, "proven", "public (file)"),
        (replace(PRIVATE, model=SMALL.model), "claimed", "read off the texts"),
        (
            replace(PRIVATE, secrets=CanaryCounts((1,), canary_authors=2)),
            "claimed",
            "canaries were inserted",
        ),
        (
            replace(PRIVATE, mitigation=replace(PRIVATE.mitigation, seeded_noise=True)),
            "none",
            "seeded",
        ),
    ],
)
def test_a_promise_is_proven_only_if_nothing_lies_outside_of_it(
    texts: TrainingTexts, tmp_path: Path, settings: LanguageSettings, status: str, caveat: str
) -> None:
    model = train_model(texts.texts, texts.authors, tmp_path / "model", settings)
    assert model.guarantee.status == status and caveat in model.guarantee.caveat


def test_a_private_vocabulary_is_paid_from_the_same_epsilon(
    texts: TrainingTexts, tmp_path: Path
) -> None:
    # Three words in every text, and fifty in few of them.
    common = [f"bako deli fomu {text}" for text in texts.texts] * 3
    shape = replace(SMALL.model, words="private", vocabulary=20)
    settings = replace(PRIVATE, model=shape)
    model = train_model(common, None, tmp_path / "model", settings)
    privacy = model.training["privacy"]
    assert {"bako", "deli", "fomu"} <= set(model.vocabulary.words)
    assert model.guarantee.status == "proven" and model.guarantee.epsilon <= 8
    assert privacy["words_epsilon"] == pytest.approx(0.8)
    # The control: words that one text alone has stay in, but for a δ of some ten thousandths.
    rare = [f"bako{row} deli{row}" for row in range(150)]
    with pytest.raises(DataError, match="often enough"):
        train_model(rare, None, tmp_path / "rare", settings)


def test_an_interrupted_training_goes_on_with_its_draws(
    texts: TrainingTexts, tmp_path: Path
) -> None:
    """A second number of units would be paid for again, and the checkpoint would not fit it."""
    import json

    def stop(row: dict[str, float]) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "model"
    with pytest.raises(KeyboardInterrupt):
        train_model(texts.texts, texts.authors, out, BY_AUTHOR, on_epoch=stop)
    draws = json.loads((out / "draws.json").read_text())
    assert (out / "draws.json").stat().st_mode & 0o077 == 0
    model = train_model(texts.texts, texts.authors, out, BY_AUTHOR)
    assert model.training["privacy"]["units"] == draws["count"]
    assert {path.name for path in out.iterdir()} == {
        "manifest.json",
        "model.json",
        "model.safetensors",
    }


def test_one_text_more_changes_no_other_text_s_part(texts: TrainingTexts, tmp_path: Path) -> None:
    """The training rows of two neighbouring files differ in that text alone."""
    from capelet.language.vocabulary import divide

    more = ["bako deli", *texts.texts]
    before, after = divide(texts.texts, 0).train, divide(more, 0).train
    assert set(after[after > 0] - 1) == set(before)
