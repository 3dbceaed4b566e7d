"""A model folder: weights, vocabulary, how it was trained and what it promises; no pickle.

- `model.safetensors`: the weights.
- `model.json`: network, sizes, vocabulary, method, guarantee, perplexities, the rows' fingerprint.
- `canaries.json`: the made-up secrets that were inserted, where there are any. They are random
  words, so the file tells nothing about the authors but their names.

The training texts are never in it. The vocabulary is, and so are author names if canaries are. A
model without a proven guarantee may hold the texts in its weights, so such files are readable by
their owner only; so is a vocabulary that was read off the texts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from capelet.data.canaries import Canary
from capelet.errors import OutputError
from capelet.files import writable_folder, write_whole
from capelet.language.model import NETWORKS, Network, state_of
from capelet.language.vocabulary import Vocabulary
from capelet.privacy.guarantees import NONE, Guarantee

SCHEMA = 1
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
        """Write the folder; `model.json` comes last, so a folder without it is not a model."""
        from safetensors.torch import save

        target = writable_folder(folder)
        weights = save(state_of(self.network))
        proven = self.guarantee.status == "proven"
        write_whole(target / WEIGHTS, weights, mode=0o644 if proven else 0o600)
        if self.canaries:
            listed = [canary.describe() for canary in self.canaries]
            write_whole(target / CANARIES, json.dumps(listed, ensure_ascii=False) + "\n", 0o600)
        else:
            (target / CANARIES).unlink(missing_ok=True)
        promised = {} if self.guarantee.notion == "none" else asdict(self.guarantee)
        about = {
            "schema": SCHEMA,
            "network": self.network.kind,
            "sizes": self.network.sizes,
            "weights": hashlib.sha256(weights).hexdigest(),
            "guarantee": {**promised, "sentence": sentence_of(self.guarantee)},
            "training": dict(self.training),
            "public_vocabulary": self.vocabulary.public,
            "vocabulary": list(self.vocabulary.words),
        }
        mode = 0o644 if proven and self.vocabulary.public else 0o600
        write_whole(target / ABOUT, json.dumps(about, ensure_ascii=False, indent=1) + "\n", mode)
        return target

    @classmethod
    def load(cls, folder: Path | str) -> LanguageModel:
        """Read what `save` wrote; an `OutputError` says what is missing, broken or too new."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        source = Path(folder)
        about = _about(source)
        try:
            raw = (source / WEIGHTS).read_bytes()
            if hashlib.sha256(raw).hexdigest() != about["weights"]:
                raise OutputError(
                    f"the weights in {str(source)!r} are not those that model.json describes; "
                    "train again, or copy the whole folder"
                )
            network = NETWORKS[about["network"]](**about["sizes"])
            network.load_state_dict(load(raw))
            vocabulary = Vocabulary(tuple(about["vocabulary"]), about["public_vocabulary"])
            promised = {k: v for k, v in about["guarantee"].items() if k != "sentence"}
            guarantee = Guarantee(**promised) if promised else NONE
            canaries = _canaries(source / CANARIES)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
            raise OutputError(
                f"{str(source)!r} is not a whole model folder; train again, or copy it anew"
            ) from None
        return cls(network, vocabulary, guarantee, canaries, about["training"])


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


def _about(source: Path) -> dict[str, Any]:
    try:
        about = json.loads((source / ABOUT).read_text(encoding="utf-8"))
        schema = about["schema"]
    except FileNotFoundError:
        unfinished = (source / CHECKPOINT).is_file()
        raise OutputError(
            f"there is no {ABOUT} in {str(source)!r}; "
            + (
                "its training was interrupted: run the same `capelet lm train` again to go on"
                if unfinished
                else "give a folder that `capelet lm train` wrote"
            )
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, OSError):
        raise OutputError(f"{str(source / ABOUT)!r} is not a model's description") from None
    if schema != SCHEMA:
        raise OutputError(
            f"the model in {str(source)!r} has schema {schema}, this version reads {SCHEMA}; "
            "use the version of capelet that wrote it, or train again"
        )
    return dict(about)


def _canaries(path: Path) -> tuple[Canary, ...]:
    if not path.is_file():
        return ()
    listed = json.loads(path.read_text(encoding="utf-8"))
    return tuple(
        Canary(item["author"], tuple(item["words"]), item["repetitions"]) for item in listed
    )
