"""A transformer's folder is looked over before it is loaded: safetensors yes, pickle never.

A pickle file runs code when it is read, so a folder that holds one, at any depth, is refused; and
of a Hugging Face repository only files that cannot run anything are ever fetched.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from capelet.encoders.packages import minilm_folder, mpnet_folder
from capelet.encoders.weights import file_hash
from capelet.errors import EncoderError
from capelet.files import TemporaryFolder, expand_user, private_folder
from capelet.interfaces import Vectors
from capelet.silence import warn_if_late

# The suffixes of pickled weights: reading such a file runs whatever code it names.
PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"})
HARMLESS = ("*.safetensors", "*.json", "*.txt", "*.model")  # weights, settings, vocabularies
_FOREIGN_EXPORTS = frozenset({"onnx", "openvino"})  # other people's exports of the same weights
_MANIFEST = ("manifest.json",)  # of a model folder (`model_folder`)
PACKAGED: dict[str, Callable[[], Path]] = {"minilm": minilm_folder, "mpnet": mpnet_folder}
_EMBEDDINGS = ("word_embeddings.weight", "embed_tokens.weight", "wte.weight", "shared.weight")


def transformer_folder(name: str) -> Path:
    """The checked folder that `name` stands for: built in, on this disk, or from the hub."""
    if name in PACKAGED:
        return PACKAGED[name]()
    folder = expand_user(name)
    if not folder.is_dir():
        folder = _fetch(name)
    check_folder(folder)
    return folder


def check_folder(folder: Path) -> None:
    """Refuse a folder that is no model, holds a pickle at any depth, or asks for its own code."""
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise EncoderError(
            f"the folder {str(folder)!r} is no model folder (it has neither config.json nor "
            "modules.json); give a sentence-transformers or Hugging Face model folder"
        )
    _modules(folder)
    places = sorted(folder.rglob("*"))
    if any(path.is_symlink() and path.is_dir() for path in places):
        # What lies behind it is not looked at here, and would be loaded all the same.
        raise EncoderError(f"the model folder {str(folder)!r} holds a link to another folder")
    files = [path for path in places if not path.is_dir()]
    # Also beside safetensors: which of the two a loader takes depends on names that anybody may
    # choose, and a file of tensors can be a decoy that nobody loads.
    pickles = [path for path in files if path.suffix.lower() in PICKLES]
    if pickles:
        raise EncoderError(
            f"the model folder {str(folder)!r} holds a pickle ({pickles[0].name}), which can run "
            "code when read; convert it to safetensors (model.save_pretrained(folder, "
            "safe_serialization=True)), and remove it"
        )
    if not any(path.suffix == ".safetensors" for path in files):
        raise EncoderError(
            f"the model folder {str(folder)!r} holds no weights as safetensors; "
            "save the model there with safe_serialization=True"
        )


def content_hash(folder: Path) -> str:
    """sha256 over every file that decides the vectors: weights, settings, tokenizer, pooling."""
    digest = hashlib.sha256()
    for path in model_files(folder):
        inside = path.relative_to(folder).as_posix()
        # With its name, or two files that changed places would hash the same.
        digest.update(f"{inside}\0{file_hash(path)}\n".encode())
    return digest.hexdigest()


def model_files(folder: Path) -> list[Path]:
    """The files that decide the vectors, in a fixed order."""
    files = sorted(path for pattern in HARMLESS for path in folder.rglob(pattern))
    inside = [path.relative_to(folder).parts for path in files]
    return [
        path
        for path, parts in zip(files, inside, strict=True)
        if not any(part.startswith(".") or part in _FOREIGN_EXPORTS for part in parts)
        and parts != _MANIFEST  # says what the folder holds and decides no vector
    ]


def make_whole(ready: Path, label: str, fill: Callable[[Path], object]) -> None:
    """Let `fill` fill a temporary folder and give it its name; the first of two processes wins."""
    with TemporaryFolder(private_folder(ready.parent), label) as temporary:
        # One level down: the temporary folder itself is removed at the end, renamed or not.
        place = temporary / "whole"
        place.mkdir(mode=0o700)
        fill(place)
        try:
            place.rename(ready)
        except OSError:
            # Another process was first; what it made is as good.
            if not ready.is_dir():
                raise


def copy_model(folder: Path, place: Path, leave_out: Callable[[Path], bool]) -> list[Path]:
    """Copy the model's files that are not left out; those that are, for the caller to write."""
    left_out = []
    for path in model_files(folder):
        target = place / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if leave_out(path):
            left_out.append(path)
        else:
            shutil.copyfile(path, target)
    return left_out


def token_table(folder: Path) -> tuple[list[str], Vectors]:
    """The input embeddings of a model folder, read from its safetensors without running it."""
    from safetensors import safe_open
    from tokenizers import Tokenizer

    tokens = next(iter(sorted(folder.rglob("tokenizer.json"))), None)
    for path in sorted(folder.rglob("*.safetensors")) if tokens else ():
        # As torch tensors: numpy has no bfloat16.
        with safe_open(path, framework="pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118 (no mapping: it has only keys())
                if key.endswith(_EMBEDDINGS):
                    table = tensors.get_tensor(key).float().numpy()
                    return in_row_order(Tokenizer.from_file(str(tokens)).get_vocab(), table)
    raise EncoderError(
        f"the model folder {str(folder)!r} has no token table that Capelet can read; "
        "give the words and vectors by Vocabulary.of(words, vectors)"
    )


def in_row_order(tokens: Mapping[str, int], table: Vectors) -> tuple[list[str], Vectors]:
    """The tokens that have a row in the table, in the order of their rows, and these rows."""
    order = sorted((row, token) for token, row in tokens.items() if row < len(table))
    return [token for _, token in order], table[[row for row, _ in order]]


def _modules(folder: Path) -> list[str]:
    """The subfolders that `modules.json` names; custom module classes are refused."""
    listing = folder / "modules.json"
    if not listing.is_file():
        return []
    try:
        modules = json.loads(listing.read_text(encoding="utf-8"))
        kinds = [str(module["type"]) for module in modules]
        paths = [str(module["path"]) for module in modules]
    except (ValueError, KeyError, TypeError):
        raise EncoderError(f"the file {str(listing)!r} is no list of modules") from None
    custom = [kind for kind in kinds if not kind.startswith("sentence_transformers.")]
    if custom:
        raise EncoderError(
            f"the model folder {str(folder)!r} asks for its own code ({custom[0]}), which Capelet "
            "does not run; use a model of standard modules"
        )
    # What lies outside was not checked for pickles, and would be loaded all the same.
    if any(Path(path).is_absolute() or ".." in Path(path).parts for path in paths):
        raise EncoderError(f"the file {str(listing)!r} points outside its folder")
    return [path for path in paths if path]


def _fetch(name: str) -> Path:
    """The hub's repository `name` on this disk; only harmless files are fetched."""
    warn_if_late("huggingface_hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    disable_progress_bars()
    try:
        return Path(snapshot_download(name, allow_patterns=list(HARMLESS)))
    except Exception as error:  # the hub client raises many kinds; each means "not to be had"
        raise EncoderError(
            f"{name!r} is neither a folder here nor a model that could be fetched "
            f"({type(error).__name__}); check the name and the network, or give a folder"
        ) from None
    finally:
        enable_progress_bars()
