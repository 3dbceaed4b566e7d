"""Weights that come in other people's packages are the ones that were looked at, or are refused."""

from __future__ import annotations

from pathlib import Path

from capelet.errors import EncoderError
from capelet.files import sha256_of_file

_hashes: dict[tuple[str, int, int], str] = {}


def file_hash(path: Path) -> str:
    """The sha256 of a file, remembered for this process as long as size and time are the same."""
    status = path.stat()
    key = (str(path.resolve()), status.st_size, status.st_mtime_ns)
    if key not in _hashes:
        _hashes[key] = sha256_of_file(path)
    return _hashes[key]


def check_weights(path: Path, sha256: str, package: str) -> None:
    """Refuse weights whose hash is not the known one.

    Whoever can put other weights into a package decides what a vector tells: an encoder that
    writes the text into its last bits passes every test of shape.
    """
    if not path.is_file() or file_hash(path) != sha256:
        raise EncoderError(
            f"the weights in the package {package!r} are not the ones that Capelet knows; "
            f"remove it and install it again (`pip uninstall {package}`)"
        )
