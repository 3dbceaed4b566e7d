"""Language models: trained into a folder, and attacked there for what they remember.

Here `language`, which trains, and `attacks`, which judge, meet; neither knows the other.
"""

from capelet.workflows.language.attack import (
    AttackSettings,
    TrainingTexts,
    attack_canaries,
    attack_model,
)
from capelet.workflows.language.compare import compare_models
from capelet.workflows.language.train import LanguageSettings, train_model

__all__ = [
    "AttackSettings",
    "LanguageSettings",
    "TrainingTexts",
    "attack_canaries",
    "attack_model",
    "compare_models",
    "train_model",
]
