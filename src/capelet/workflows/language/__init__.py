"""Language models: trained into a folder; runs that attacked them (`evaluation.extraction`)."""

from capelet.workflows.language.compare import compare_models
from capelet.workflows.language.train import LanguageSettings, train_model

__all__ = [
    "LanguageSettings",
    "compare_models",
    "train_model",
]
