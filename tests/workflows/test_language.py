"""A language model is trained into a folder and attacked there, by the settings and no others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from capelet.errors import CapeletError, DataError
from capelet.language.folders import LanguageModel
from capelet.workflows.language import (
    AttackSettings,
    CanarySettings,
    LanguageSettings,
    MethodSettings,
    NetworkSettings,
    ScheduleSettings,
    TrainingTexts,
    attack_model,
    train_model,
)

NAMES = [f"{a}{b}" for a in "bdfglmnprs" for b in ("ako", "eli", "omu", "ita", "une")]
SMALL = LanguageSettings(
    NetworkSettings("lstm", 50, 16, 1, 8),
    ScheduleSettings(epochs=2, batch=40, rate=5e-3, device="cpu"),
    canaries=CanarySettings((1, 20), per_level=3),
)
ATTACK = AttackSettings(samples=1100, device="cpu")


@pytest.fixture(scope="module")
def texts() -> TrainingTexts:
    random = np.random.default_rng(3)
    rows = [" ".join(random.choice(NAMES, 7)) for _ in range(700)]
    gender = [("f", "m", None)[row % 3] for row in range(700)]
    return TrainingTexts(rows, [f"author{row % 12:02d}" for row in range(700)], {"gender": gender})


@pytest.fixture(scope="module")
def folder(texts: TrainingTexts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("language") / "model"
    seen: list[float] = []
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
        (replace(SMALL, method=MethodSettings("dpsgdd")), "did you mean 'dpsgd'"),
        (replace(SMALL, method=MethodSettings("none", epsilon=1.0)), "promises nothing"),
        (replace(SMALL, method=MethodSettings("triplet", position="first")), "no position"),
        (replace(SMALL, method=MethodSettings("dpsgd")), "epsilon or noise_multiplier"),
        (replace(SMALL, schedule=ScheduleSettings(batch=0)), "batch is 0"),
        (replace(SMALL, network=NetworkSettings(vocabulary=50, length=3)), "would be cut off"),
    ],
)
def test_settings_that_do_not_hold_are_refused_before_any_work(
    texts: TrainingTexts, tmp_path: Path, settings: LanguageSettings, sentence: str
) -> None:
    with pytest.raises(CapeletError, match=sentence):
        train_model(texts.texts, texts.authors, tmp_path / "model", settings)
    assert not (tmp_path / "model").exists()


def test_canaries_and_hidden_authors_need_authors(texts: TrainingTexts, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="canaries belong to authors"):
        train_model(texts.texts, None, tmp_path, SMALL)
    hidden = replace(SMALL, canaries=CanarySettings(), method=MethodSettings("triplet"))
    with pytest.raises(DataError, match="'triplet' hides authors"):
        train_model(texts.texts, None, tmp_path, hidden)
