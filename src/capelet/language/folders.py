"""The model folder of a language model: weights, vocabulary, training and promise.

- `model.safetensors`: the weights.
- `model.json`: network, sizes, vocabulary, method, guarantee, perplexities, the rows' fingerprint.
- `canaries.json`: the made-up secrets that were inserted, where there are any. They are random
  words, so the file tells nothing about the authors but their names.

The training texts are never in it. The vocabulary is, and so are author names if canaries are. A
model without a proven guarantee may hold the texts in its weights. As every model folder
(`encoders.model_folder`) it is readable by its owner only; one with a proven guarantee and a public
vocabulary may be handed on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capelet.data.canaries import Canary
from capelet.encoders.model_folder import (
    LANGUAGE_MODEL,
    ModelFolder,
    kind_of,
    open_folder,
    write_folder,
)
from capelet.errors import OutputError
from capelet.language.model import NETWORKS, Network, state_of
from capelet.language.vocabulary import Vocabulary
from capelet.privacy.guarantees import NONE, Guarantee

# The names of the files in every folder written so far.
WEIGHTS, ABOUT, CANARIES = "model.safetensors", "model.json", "canaries.json"
CHECKPOINT = "checkpoint.safetensors"


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A trained network with its vocabulary, its guarantee and an account of its training."""

    network: Network
    vocabulary: Vocabulary
    guarantee: Guarantee = NONE
    canaries: tuple[Canary, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)

    def save(self, folder: Path | str) -> Path:
        """Write the model folder."""
        from safetensors.torch import save

        promise = {} if self.guarantee.notion == "none" else self.guarantee.to_json()
        about = {
            "network": self.network.kind,
            "sizes": self.network.sizes,
            "guarantee": {**promise, "sentence": sentence_of(self.guarantee)},
            "training": dict(self.training),
            "public_vocabulary": self.vocabulary.public,
            "vocabulary": list(self.vocabulary.words),
        }
        files: dict[str, bytes | str | Path] = {WEIGHTS: save(state_of(self.network))}
        if self.canaries:
            secrets = [canary.describe() for canary in self.canaries]
            files[CANARIES] = json.dumps(secrets, ensure_ascii=False) + "\n"
        else:  # of a model that lay here before
            (Path(folder) / CANARIES).unlink(missing_ok=True)
        files[ABOUT] = json.dumps(about, ensure_ascii=False, indent=1) + "\n"
        return write_folder(folder, LANGUAGE_MODEL, files)

    @classmethod
    def load(cls, folder: Path | str) -> LanguageModel:
        """Read what `save` wrote; an `OutputError` says what is missing, changed or too new."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        source = _open(Path(folder))
        about = source.read_json(ABOUT)
        try:
            network = NETWORKS[about["network"]](**about["sizes"])
            network.load_state_dict(load(source.read(WEIGHTS)))
            vocabulary = Vocabulary(tuple(about["vocabulary"]), about["public_vocabulary"])
            # The sentence is for people who open the file; the fields are what counts.
            promise = {k: v for k, v in about["guarantee"].items() if k != "sentence"}
            guarantee = Guarantee.from_json(promise) if promise else NONE
            secrets = json.loads(source.read(CANARIES)) if CANARIES in source.files else []
            canaries = tuple(
                Canary(item["author"], tuple(item["words"]), item["repetitions"])
                for item in secrets
            )
            return cls(network, vocabulary, guarantee, canaries, about["training"])
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
            raise OutputError(
                f"{str(source.path)!r} is not a whole model folder; train again, or copy it again"
            ) from None


def _open(source: Path) -> ModelFolder:
    if kind_of(source) is None and (source / CHECKPOINT).is_file():
        raise OutputError(
            f"there is no model in {str(source)!r} yet; its training was interrupted: run the same "
            "`capelet lm train` again to go on"
        )
    return open_folder(source, LANGUAGE_MODEL)


def sentence_of(guarantee: Guarantee) -> str:
    """The promise in words; a model without one says so of its training texts."""
    if guarantee.notion == "none":
        return "no guarantee: the model may give back what it was trained on"
    return guarantee.sentence()


def digest_of(texts: Sequence[str]) -> str:
    """A hash that tells whether two lists of texts are the same, and nothing else."""
    total = hashlib.sha256()
    for text in texts:
        total.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return total.hexdigest()
