"""The model folder of a language model: weights, vocabulary, training and promise.

- `model.safetensors`: the weights.
- `model.json`: network, sizes, vocabulary, method, guarantee; of a model without a promise also its
  perplexities and the number of its texts.
- `canaries.json`: the made-up secrets that were inserted, where there are any. They are random
  words; their authors are numbered, not named.

Neither the training texts nor a digest of them are in it: what the owner needs to attack the model
lies elsewhere (`records`). Of a model with a promise, everything in the folder is covered by it:
the settings are public, the number of units is noised, exact figures are left out. A model without
one may hold the texts in its weights. As every model folder (`encoders.model_folder`) it is
readable by its owner only; one with a proven guarantee may be handed on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from capelet.data.canaries import Canary
from capelet.encoders.model_folder import LANGUAGE_MODEL, ModelFolder, open_folder, write_folder
from capelet.errors import OutputError
from capelet.language.model import NETWORKS, Network, state_of
from capelet.language.records import Record
from capelet.language.vocabulary import Vocabulary
from capelet.privacy.guarantees import NONE, Guarantee

# The names of the files in every folder.
WEIGHTS, ABOUT, CANARIES = "model.safetensors", "model.json", "canaries.json"
# There only until the training has ended: where it goes on, and what noise it has drawn.
CHECKPOINT, DRAWS = "checkpoint.safetensors", "draws.json"


@dataclass(frozen=True, eq=False)
class LanguageModel:
    """A trained network with its vocabulary, its guarantee and an account of its training.

    `training` is what the folder tells; `record` is the owner's, None where it is not here.
    """

    network: Network
    vocabulary: Vocabulary
    guarantee: Guarantee = NONE
    canaries: tuple[Canary, ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    record: Record | None = None

    def save(self, folder: Path | str) -> Path:
        """Write the model folder, and then the record of its owner outside of it.

        In this order a run that is killed at its end, and taken up by its checkpoint, finds in the
        folder under which id the record is or would be (`id_in`), and leaves no second one.
        """
        from safetensors.torch import save

        promise = {} if self.guarantee.notion == "none" else self.guarantee.to_json()
        about = {
            "network": self.network.kind,
            "sizes": self.network.sizes,
            "guarantee": {**promise, "sentence": sentence_of(self.guarantee)},
            "training": dict(self.training),
            "public_vocabulary": self.vocabulary.public,
            "vocabulary_source": self.vocabulary.source,
            "vocabulary": list(self.vocabulary.words),
        }
        if self.record is not None:
            about["id"] = self.record.id
        files: dict[str, bytes | str | Path] = {WEIGHTS: save(state_of(self.network))}
        if self.canaries:
            secrets = [canary.describe() for canary in _number_authors(self.canaries)]
            files[CANARIES] = json.dumps(secrets, ensure_ascii=False) + "\n"
        else:  # of a model that lay here before
            (Path(folder) / CANARIES).unlink(missing_ok=True)
        files[ABOUT] = json.dumps(about, ensure_ascii=False, indent=1) + "\n"
        target = write_folder(folder, LANGUAGE_MODEL, files)
        if self.record is not None:
            self.record.keep()
        return target

    @classmethod
    def load(cls, folder: Path | str) -> LanguageModel:
        """Read what `save` wrote; an `OutputError` says what is missing or changed."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        source = _open(Path(folder))
        about = source.read_json(ABOUT)
        try:
            network = NETWORKS[about["network"]](**about["sizes"])
            network.load_state_dict(load(source.read(WEIGHTS)))
            vocabulary = Vocabulary(tuple(about["vocabulary"]), about["vocabulary_source"])
            guarantee = _promise_of(about)
            secrets = json.loads(source.read(CANARIES)) if CANARIES in source.files else []
            canaries = tuple(
                Canary(item["author"], tuple(item["words"]), item["repetitions"])
                for item in secrets
            )
            record = Record.find(str(about.get("id", "")))
            if record is not None and len(record.canary_authors) == len(canaries):
                canaries = tuple(
                    replace(canary, author=name)
                    for canary, name in zip(canaries, record.canary_authors, strict=True)
                )
            return cls(network, vocabulary, guarantee, canaries, about["training"], record)
        except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
            raise OutputError(
                f"{str(source.path)!r} is not a whole model folder; train again, or copy it again"
            ) from None


def id_in(folder: Path) -> str:
    """The id of the record that a folder names, whole or half-written; nothing where it has none.

    It may be anybody's folder: whoever asks must look whose record that is (`Record.under`).
    """
    try:
        return str(json.loads((folder / ABOUT).read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _open(source: Path) -> ModelFolder:
    # Also beside a whole model: a training that was killed at its very end leaves exact figures.
    if (source / CHECKPOINT).is_file():
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


def promise_in(folder: Path | str) -> Guarantee:
    """What a folder promises, without its weights being read."""
    return _promise_of(_open(Path(folder)).read_json(ABOUT))


def _promise_of(about: Mapping[str, Any]) -> Guarantee:
    # The sentence is for people who open the file; the fields are what counts.
    content = {k: v for k, v in about.get("guarantee", {}).items() if k != "sentence"}
    return Guarantee.from_json(content) if content else NONE


def _number_authors(canaries: Sequence[Canary]) -> list[Canary]:
    """The canaries with a number for each author: names are in the owner's record alone."""
    numbers: dict[str, str] = {}
    for canary in canaries:
        numbers.setdefault(canary.author, f"author {len(numbers) + 1}")
    return [replace(canary, author=numbers[canary.author]) for canary in canaries]
