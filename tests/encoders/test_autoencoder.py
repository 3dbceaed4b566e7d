"""An auto-encoder is a table of words and a bias: numpy, safetensors and JSON, nothing else."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from capelet.encoders import AutoEncoder, load
from capelet.encoders.autoencoder import TABLE, WORDS, checked_vocabulary, vocabulary
from capelet.encoders.model_folder import MANIFEST
from capelet.encoders.own import OWN
from capelet.errors import CapeletError, DataError, EncoderError
from capelet.interfaces import Encoder
from capelet.release import PrivateEncoder
from capelet.release.maps import Map, affine


@pytest.fixture
def small() -> AutoEncoder:
    table = np.array([[1, 0], [0, 2], [-4, 1]], dtype=np.float32)
    return AutoEncoder(OWN, ("cat", "dog", "rain"), table, np.array([0.5, -0.5], dtype=np.float32))


def test_a_vector_is_the_mean_of_the_words_and_the_bias_above_zero(small: AutoEncoder) -> None:
    assert isinstance(small, Encoder) and small.dimension == 2
    made = small.encode(["Cat dog!", "rain", "unknown", ""])
    np.testing.assert_allclose(made, [[1.0, 0.5], [0.0, 0.5], [0.5, 0.0], [0.5, 0.0]])
    assert not small.truncated(["cat " * 10_000]).any()
    assert small.encode([]).shape == (0, 2)


def test_the_vocabulary_is_what_most_texts_use() -> None:
    texts = ["the cat"] * 6 + ["the the dog"] * 5 + ["the secret"] * 4
    assert vocabulary(texts) == ("the", "cat", "dog")  # four texts are too few for a word
    assert vocabulary(texts, most=1) == ("the",)
    with pytest.raises(DataError, match="give more texts"):
        checked_vocabulary(["one text"] * 3)


def test_a_folder_comes_back_and_is_an_encoder_by_name(small: AutoEncoder, tmp_path: Path) -> None:
    small.save(tmp_path / "words")
    back = load(str(tmp_path / "words"))
    assert back.fingerprint == small.fingerprint and back.backend == "numpy"
    np.testing.assert_array_equal(back.encode(["cat rain"]), small.encode(["cat rain"]))


def test_a_changed_folder_is_refused_and_its_words_are_the_owners(
    small: AutoEncoder, tmp_path: Path
) -> None:
    small.save(tmp_path)
    assert (tmp_path / WORDS).stat().st_mode & 0o777 == 0o600
    (tmp_path / WORDS).write_text(json.dumps({"words": ["cat", "dog", "sun"]}))
    with pytest.raises(EncoderError, match="was changed after"):
        AutoEncoder.load(tmp_path, "x")


@pytest.mark.parametrize("change", [{}, {"format": 1}])
def test_a_folder_without_its_manifest_is_refused(
    small: AutoEncoder, tmp_path: Path, change: dict[str, int]
) -> None:
    small.save(tmp_path)
    (tmp_path / MANIFEST).unlink()
    words = json.loads((tmp_path / WORDS).read_text())
    (tmp_path / WORDS).write_text(json.dumps({**change, **words}))
    for attempt in (lambda: load(str(tmp_path)), lambda: AutoEncoder.load(tmp_path, "x")):
        with pytest.raises(EncoderError, match=r"manifest .* is missing"):
            attempt()


def test_words_that_do_not_fit_the_table_are_refused(small: AutoEncoder) -> None:
    with pytest.raises(EncoderError, match="which do not fit"):
        AutoEncoder(OWN, ("cat",), small.table, small.bias)


def test_the_fingerprint_stays(small: AutoEncoder) -> None:
    """Vectors are cached under it: a change would encode every text anew."""
    assert small.fingerprint[:16] == "14d57596598a77e5"


def private(small: AutoEncoder, folder: Path) -> Path:
    return PrivateEncoder(small, Map((affine([[1.0, 2.0]], [0.0]),))).save(folder)


def test_it_travels_inside_a_private_encoder(small: AutoEncoder, tmp_path: Path) -> None:
    folder = private(small, tmp_path / "private")
    moved = folder.rename(tmp_path / "elsewhere")
    back = PrivateEncoder(str(moved))
    assert back.consumes == "texts" and back.recipe["steps"][0]["name"] == OWN
    np.testing.assert_allclose(back.release(["cat dog"]).vectors, [[2.0]])
    again = back.save(tmp_path / "again")
    assert (again / "encoder" / TABLE).read_bytes() == (moved / "encoder" / TABLE).read_bytes()


def test_a_tampered_or_missing_encoder_is_refused(small: AutoEncoder, tmp_path: Path) -> None:
    folder = private(small, tmp_path / "private")
    other = AutoEncoder(OWN, small.words, small.table + 1, small.bias)
    other.save(folder / "encoder")
    with pytest.raises(CapeletError, match=r"encoder/manifest.json' .* was changed after"):
        PrivateEncoder(str(folder))
    manifest = json.loads((folder / MANIFEST).read_text())
    changed = (folder / "encoder" / MANIFEST).read_bytes()
    manifest["files"]["encoder/manifest.json"] = hashlib.sha256(changed).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CapeletError, match="its id differs"):
        PrivateEncoder(str(folder))
    for path in (folder / "encoder").iterdir():
        path.unlink()
    (folder / "encoder").rmdir()
    with pytest.raises(EncoderError, match="needs its whole folder"):
        PrivateEncoder(str(folder))


def test_no_model_framework_is_needed(small: AutoEncoder, tmp_path: Path) -> None:
    folder = private(small, tmp_path / "private")
    code = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'sentence_transformers'):\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "from capelet.release import PrivateEncoder\n"
        "print(PrivateEncoder.load(sys.argv[1]).release(['cat dog']).vectors.tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[2.0]]
