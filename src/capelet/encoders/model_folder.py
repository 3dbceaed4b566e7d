"""The one format of what was learnt: a folder with a manifest, tensors and JSON, no pickle.

    manifest.json   {"format": 1, "kind": "auto-encoder", "capelet": "0.1.0",
                     "files": {"autoencoder.json": "<sha256>", …},
                     "origin": {"id": "<random>", "training": {…}}}
    *.safetensors   the tensors
    *.json, *.toml  everything else

Private encoders, auto-encoders, dual encoders, tuned encoders and language models are all kept like
this, and all are read by `open_folder`, which refuses a folder that is of another kind or format,
lacks a file, has a changed one, or names one that lies outside or could run code.

**What the hashes are for.** They find an ε that was edited by hand, a file of another training, a
copy that broke off. They do not stop somebody who may write the manifest too: a folder is as
trustworthy as the place where it came from. Beside the weights themselves their hash tells nothing
new; anywhere else it would (`privacy.origins`), so no recipe and no finding repeats it. `origin` is
the public name of what was learnt, and what the texts that trained it are promised.

**Permissions, one rule for every kind and every file**: the folder is 0700 and its files 0600.
Words, weights and settings may all be derived from private texts, and a rule without exceptions
cannot be applied wrongly. Whoever wants to hand a folder on changes that knowingly.

The manifest is removed first and written last, so a folder that was left half-written has none. A
folder without a manifest is never read: nothing in it has a hash that could be checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from capelet import __version__
from capelet.encoders.folders import PICKLES
from capelet.errors import CapeletError, FolderError
from capelet.files import copy_whole, private_folder, sha256_of_file, writable_folder, write_whole
from capelet.privacy.origins import Origin

MANIFEST = "manifest.json"
# The only format that is read. Raised with every change of it.
FORMAT = 1
# The mode of every file; that of the folders is 0700 (`files.private_folder`).
OWNER_ONLY = 0o600

PRIVATE_ENCODER, AUTO_ENCODER = "private-encoder", "auto-encoder"
DUAL_ENCODER, TUNED_ENCODER = "dual-encoder", "tuned-encoder"
LANGUAGE_MODEL = "language-model"
KINDS = {
    PRIVATE_ENCODER: "a private encoder: a folder that `capelet protect` wrote",
    AUTO_ENCODER: "an auto-encoder: a folder inside one that `capelet protect` wrote",
    DUAL_ENCODER: "a dual encoder: a folder that `capelet dual train` wrote",
    TUNED_ENCODER: "a tuned encoder: a folder inside one that `capelet protect` wrote",
    LANGUAGE_MODEL: "a language model; give a folder that `capelet lm train` wrote",
}
# The file that describes each kind, by which a folder whose manifest is gone is known, and refused.
_DESCRIPTIONS = {
    "private.json": PRIVATE_ENCODER,
    "autoencoder.json": AUTO_ENCODER,
    "dual.json": DUAL_ENCODER,
    "model.json": LANGUAGE_MODEL,
}


@dataclass(frozen=True)
class ModelFolder:
    """A folder whose manifest was read: its kind, and the hash that each of its files must have."""

    path: Path
    kind: str
    files: Mapping[str, str]
    origin: Origin | None = None

    def read(self, name: str) -> bytes:
        """The bytes of a file of the manifest; these bytes were hashed, not those of a later read.

        A caller parses what it was given here and never opens the file again, which may have been
        exchanged in between.
        """
        path = self._inside(name)
        try:
            content = path.read_bytes()
        except OSError:
            raise self._missing_error(name) from None
        if hashlib.sha256(content).hexdigest() != self.files[name]:
            raise self._change_error(name)
        return content

    def read_json(self, name: str) -> dict[str, Any]:
        """A file of the manifest as a JSON object."""
        try:
            content = json.loads(self.read(name))
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise FolderError(f"{str(self.path / name)!r} is no JSON object; {_RESTORE}")
        return content

    def read_origin(self) -> Origin:
        """Where the one learnt thing of this folder comes from; without it nobody could tell."""
        if self.origin is None:
            raise _unreadable(self.path)
        return self.origin

    def check(self) -> None:
        """Refuse the folder unless every file of the manifest is there as it was written."""
        for name, digest in self.files.items():
            path = self._inside(name)
            if not path.is_file():
                raise self._missing_error(name)
            if sha256_of_file(path) != digest:
                raise self._change_error(name)

    def folder(self, name: str, *kinds: str) -> ModelFolder:
        """A model folder inside this one, whose manifest is a file of this one's."""
        if not (self.path / name).is_dir():
            raise self._missing_error(name)
        # Read for its hash alone: it ties the inner manifest, and so every inner file, to ours.
        self.read(f"{name}/{MANIFEST}")
        return open_folder(self.path / name, *kinds)

    def _inside(self, name: str) -> Path:
        # What is not in the manifest has no hash that could be checked.
        if name not in self.files:
            raise FolderError(
                f"{name!r} is not in the manifest of {str(self.path)!r}, and only what is there is "
                f"read; {_RESTORE}"
            )
        return self.path / name

    def _missing_error(self, name: str) -> FolderError:
        return FolderError(
            f"{name!r} is missing from {str(self.path)!r}, which needs its whole folder; {_RESTORE}"
        )

    def _change_error(self, name: str) -> FolderError:
        return FolderError(
            f"{name!r} in {str(self.path)!r} was changed after it was written: its hash differs "
            f"from that of the manifest; {_RESTORE}"
        )


_RESTORE = "restore the folder, or train again"


def kind_of(path: Path) -> str | None:
    """What a folder says it holds, also one that `open_folder` would refuse; None of any other."""
    if (path / MANIFEST).is_file():
        kind = _manifest(path).get("kind")
        return kind if isinstance(kind, str) and kind in KINDS else None
    return next((kind for name, kind in _DESCRIPTIONS.items() if (path / name).is_file()), None)


def holds_model(path: Path) -> bool:
    """Whether a whole model lies there; what a killed run left half-written is none."""
    return (path / MANIFEST).is_file()


def open_folder(path: Path | str, *kinds: str) -> ModelFolder:
    """The folder, if its manifest can be read, is of one of these kinds and names safe files."""
    source = Path(path)
    kind = kind_of(source)
    if kind is None or kind not in kinds:
        actual = "" if kind is None else f" (it is {KINDS[kind].partition(':')[0]})"
        raise FolderError(f"{str(source)!r} is not {KINDS[kinds[0]]}{actual}")
    if not (source / MANIFEST).is_file():
        raise FolderError(
            f"the manifest of the model folder {str(source)!r} is missing; restore the whole "
            "folder, or train again"
        )
    manifest = _manifest(source)
    try:
        version = int(manifest["format"])
        files = {str(name): str(digest) for name, digest in manifest["files"].items()}
        # Of one learnt thing; a private encoder may be put together from several, or none.
        entry = manifest.get("origin")
        origin = None if entry is None else Origin.from_json(entry)
    except (KeyError, TypeError, ValueError, AttributeError, CapeletError):
        raise _unreadable(source) from None
    if version != FORMAT:
        raise FolderError(
            f"{str(source)!r} has format {version}, and this version reads {FORMAT}; use the "
            "version of capelet that wrote it, or train again"
        )
    for name in files:
        check_name(source, name)
    return ModelFolder(source, kind, files, origin=origin)


def check_name(folder: Path, name: str) -> None:
    """Refuse a file that lies outside its folder, by its name or through a link, or is a pickle."""
    place = PurePosixPath(name)
    outside = place.is_absolute() or ".." in place.parts or "\\" in name or not place.parts
    if outside or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise FolderError(
            f"the folder {str(folder)!r} names the file {name!r}, which lies outside of it; "
            f"{_RESTORE}"
        )
    if place.suffix.lower() in PICKLES:
        raise FolderError(
            f"the folder {str(folder)!r} names {name!r}, a pickle, which can run code when it is "
            "read; Capelet writes safetensors only"
        )


def write_folder(
    path: Path | str,
    kind: str,
    files: Mapping[str, bytes | str | Path],
    folders: Sequence[str] = (),
    origin: Origin | None = None,
) -> Path:
    """Write a model folder: its files (bytes, text or a file to copy), and the manifest last.

    `folders` are model folders that were written into it before: their manifests are listed, and
    so, through them, every file in them. `origin` names what was learnt, where the folder is one
    learnt thing.
    """
    target = claim_folder(path)
    before = set(_manifest(target).get("files", ())) if (target / MANIFEST).is_file() else set()
    # Before anything else: a mixture of two models' files must never look like one.
    (target / MANIFEST).unlink(missing_ok=True)
    hashes = {}
    for name, content in files.items():
        check_name(target, name)
        hashes[name] = _write(target, name, content)
    for name in folders:
        inner = f"{name}/{MANIFEST}"
        hashes[inner] = sha256_of_file(target / inner)
    for name in before - set(hashes):  # of the model that lay here: its canaries, its other maps
        check_name(target, name)
        (target / name).unlink(missing_ok=True)
    manifest = {"format": FORMAT, "kind": kind, "capelet": __version__, "files": hashes}
    if origin is not None:
        manifest["origin"] = origin.to_json()
    write_whole(target / MANIFEST, json.dumps(manifest, indent=1) + "\n", OWNER_ONLY)
    return target


def claim_folder(path: Path | str) -> Path:
    """The folder, made if need be, writable, and readable by its owner only."""
    return private_folder(writable_folder(path))


def _write(target: Path, name: str, content: bytes | str | Path) -> str:
    """Put one file into the folder; its hash."""
    path = target / name
    for parent in reversed(path.relative_to(target).parents[:-1]):
        private_folder(target / parent)
    if isinstance(content, Path):
        if not (path.exists() and path.samefile(content)):  # a folder may be saved onto itself
            copy_whole(content, path, OWNER_ONLY)
        # A file that is its own source may have had a wider mode.
        path.chmod(OWNER_ONLY)
        return sha256_of_file(path)
    data = content.encode() if isinstance(content, str) else content
    write_whole(path, data, OWNER_ONLY)
    return hashlib.sha256(data).hexdigest()


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        manifest = None
    if not isinstance(manifest, dict):
        raise _unreadable(path)
    return manifest


def _unreadable(path: Path) -> FolderError:
    return FolderError(f"the manifest of the model folder {str(path)!r} is broken; {_RESTORE}")
