"""Folders from before there was a manifest: the file that described each kind, and its hashes.

Each kind had a JSON file of its own with a version number in it, always 1. That number is gone from
the files that are written now, so a folder cannot be passed off as an old one by taking its
manifest away.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capelet.errors import FolderError
from capelet.files import sha256_of_file

# The only format there was.
FORMAT = 1


@dataclass(frozen=True)
class OldLayout:
    """The JSON file of a kind, the key of its version, and the hashes that can be had from it."""

    description: str
    version: str
    find_hashes: Callable[[Path, Mapping[str, Any]], dict[str, str]]

    def hashes(self, path: Path) -> dict[str, str]:
        """The files of the folder with the hash that each must have; refused if it is no old one.

        Where the old layout kept no hash, that of the file as it is stands for it: such a file was
        never protected from changes.
        """
        source = path / self.description
        try:
            about = json.loads(source.read_text(encoding="utf-8"))
            version = int(about[self.version])
        except (OSError, ValueError, KeyError, TypeError):
            raise FolderError(
                f"the manifest of the model folder {str(path)!r} is missing, or {source.name!r} is "
                "broken; restore the whole folder, or train again"
            ) from None
        if version > FORMAT:
            raise FolderError(
                f"{str(path)!r} has format {version}, and this version reads up to {FORMAT} "
                "without a manifest; install a newer capelet"
            )
        try:
            return {self.description: sha256_of_file(source), **self.find_hashes(path, about)}
        except (OSError, ValueError, KeyError, TypeError):
            raise FolderError(
                f"the model folder {str(path)!r} needs its whole folder, and something of it is "
                "missing or broken; restore it, or train again"
            ) from None


def _recipe_and_maps(path: Path, about: Mapping[str, Any]) -> dict[str, str]:
    """The recipe's hash stood in `private.json`, those of the maps in the recipe."""
    recipe = tomllib.loads((path / "recipe.toml").read_text(encoding="utf-8"))
    maps = [entry for entry in recipe["steps"] if entry["step"] == "map"]
    for entry in maps:
        # Anybody may have written the recipe; it must not make us read files elsewhere.
        if Path(entry["file"]).name != entry["file"]:
            raise ValueError("a map outside the folder")
    return {
        "recipe.toml": str(about["recipe_sha256"]),
        **{str(entry["file"]): str(entry["sha256"]) for entry in maps},
    }


def _table(path: Path, about: Mapping[str, Any]) -> dict[str, str]:
    name = "autoencoder.safetensors"
    return {name: sha256_of_file(path / name)}


def _dual_weights(path: Path, about: Mapping[str, Any]) -> dict[str, str]:
    return {"dual.safetensors": str(about["weights"])}


def _weights_and_canaries(path: Path, about: Mapping[str, Any]) -> dict[str, str]:
    canaries = path / "canaries.json"
    extra = {canaries.name: sha256_of_file(canaries)} if canaries.is_file() else {}
    return {"model.safetensors": str(about["weights"]), **extra}


# By kind. An old tuned encoder was a plain transformer folder, which nothing marks: `own`.
LAYOUTS = {
    "private-encoder": OldLayout("private.json", "format", _recipe_and_maps),
    "auto-encoder": OldLayout("autoencoder.json", "format", _table),
    "dual-encoder": OldLayout("dual.json", "schema", _dual_weights),
    "language-model": OldLayout("model.json", "schema", _weights_and_canaries),
}
