"""Steps are checked for fit, noise carries its guarantee, a release says how it was made."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import capelet
from capelet.data.corpus import Corpus
from capelet.data.datasets import load
from capelet.encoders import load as load_encoder
from capelet.encoders import with_cache
from capelet.encoders.model_folder import FORMAT, MANIFEST
from capelet.errors import CapeletError, OutputError
from capelet.mechanisms import Gaussian, Laplace, Projection, WordDropout, WordReplacement
from capelet.mechanisms.words import amplify
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.release import PrivateEncoder, Release, is_private_encoder, recipe_hash
from capelet.release.batch import encode
from capelet.release.maps import Map, affine
from capelet.workflows.audit import audit


class Shift:
    """A vector step that moves everything by one; it adds no noise."""

    consumes = emits = "vectors"
    guarantee = None
    isolates_rows = True

    def describe(self) -> dict[str, Any]:
        return {"step": "shift"}

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return batch + 1


class Promise(Shift):
    guarantee = Guarantee(epsilon=2.0)

    def describe(self) -> dict[str, Any]:
        return {"step": "promise", "epsilon": 2.0}


def test_ready_vectors_pass_through() -> None:
    release = PrivateEncoder().release(np.eye(3))
    np.testing.assert_array_equal(release.vectors, np.eye(3))
    assert release.guarantee == NONE and release.recipe == {"steps": []}


def test_steps_run_in_order_and_describe_themselves() -> None:
    private = PrivateEncoder("wordllama", Shift(), Promise())
    texts = ["one text", "another text"]
    release = private.release(texts)
    plain = private.unprotected().release(texts)
    np.testing.assert_allclose(release.vectors, plain.vectors + 2)
    assert [step["step"] for step in release.recipe["steps"]] == ["encoder", "shift", "promise"]
    assert release.guarantee == Guarantee(epsilon=2.0) and plain.guarantee == NONE
    assert private.protects and not private.unprotected().protects
    assert release.recipe_hash == recipe_hash(private.recipe) != plain.recipe_hash


class Centre(Shift):
    """A step of somebody else's that mixes rows, and says nothing of it."""

    isolates_rows = False

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return batch - batch.mean(axis=0)


class CentredProjection(Projection):
    """One that takes a step of ours and changes it: what was said of ours is not said of it."""

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        return super().__call__(batch - batch.mean(axis=0))


class Lengths:
    """An encoder of somebody else's."""

    name, backend, dimension, fingerprint = "lengths", "python", 1, "0" * 64

    def encode(self, texts: list[str], progress: object = None) -> np.ndarray:
        return np.array([[len(text)] for text in texts], dtype=np.float32)

    def truncated(self, texts: list[str]) -> np.ndarray:
        return np.zeros(len(texts), dtype=bool)


def test_what_may_mix_rows_before_the_noise_is_said_in_the_guarantee() -> None:
    """ε is about one text; of what its neighbours' vectors tell of it there is no proof then."""
    drop = WordDropout(0.5)
    for private in (
        PrivateEncoder(Centre(), Laplace(2.0)),
        PrivateEncoder(Lengths(), Laplace(2.0)),
        PrivateEncoder(CentredProjection(4), Laplace(2.0)),
    ):
        assert "depends on no other text" in private.guarantee.caveat
        assert "depends on no other text" in private.guarantee.sentence()
    word_guarantee = PrivateEncoder(drop, Lengths(), Laplace(2.0)).word_guarantee
    assert word_guarantee is not None and "no other text" in word_guarantee.caveat
    # The controls: what Capelet brings, what follows the noise, and what promises nothing.
    cached = PrivateEncoder(with_cache(load_encoder("wordllama")), Projection(8), Laplace(2.0))
    assert cached.guarantee == Guarantee(2.0)
    assert PrivateEncoder(Laplace(2.0), Centre()).guarantee == Guarantee(2.0)
    assert PrivateEncoder(Lengths()).guarantee == NONE


def test_noise_upon_noise_keeps_the_strongest_promise() -> None:
    """Only the last result leaves: each step's guarantee holds of it, and none is spent twice."""

    class Stronger(Promise):
        guarantee = Guarantee(epsilon=1.0)

    assert PrivateEncoder(Promise(), Stronger()).guarantee.epsilon == 1.0
    assert PrivateEncoder(Stronger(), Shift(), Promise()).guarantee.epsilon == 1.0


class Upper:
    """A text step of someone else's, which may do anything to the words."""

    consumes = emits = "texts"
    guarantee = None

    def describe(self) -> dict[str, Any]:
        return {"step": "upper"}

    def __call__(self, batch: list[str]) -> list[str]:
        return [text.upper() for text in batch]


TABLE = (["good", "fine", "bad"], [[1.0, 0.0], [0.9, 0.1], [-1.0, 0.0]])


def test_dropout_before_noise_gives_each_word_a_stronger_promise() -> None:
    private = PrivateEncoder(WordDropout(0.5), "wordllama", Laplace(2.0))
    assert private.guarantee == Guarantee(2.0)  # what bounds a whole text stays as it is
    promise = private.word_guarantee
    assert promise == Guarantee(amplify(2.0, 0.5), unit="word")
    assert promise.epsilon < 2.0
    rough = PrivateEncoder(WordDropout(0.3), "wordllama", Gaussian(1.0, 1e-5)).word_guarantee
    assert rough is not None and rough.epsilon == amplify(1.0, 0.3)
    assert rough.delta == pytest.approx(0.7e-5)


def test_only_noise_after_the_dropout_is_amplified_and_the_best_dropout_counts() -> None:
    replace = WordReplacement(3.0, TABLE)
    drop, often = WordDropout(0.5), WordDropout(0.9)
    wanted = PrivateEncoder(drop, "wordllama", Laplace(2.0)).word_guarantee
    assert PrivateEncoder(replace, drop, "wordllama", Laplace(2.0)).word_guarantee == wanted
    assert PrivateEncoder(drop, replace, "wordllama", Laplace(2.0)).word_guarantee == wanted
    best = PrivateEncoder(drop, often, "wordllama", Laplace(2.0)).word_guarantee
    assert best is not None and best.epsilon == amplify(2.0, 0.9)


@pytest.mark.parametrize(
    "steps",
    [
        (WordDropout(0.5), "wordllama"),  # nothing to amplify
        (WordDropout(0.5), WordReplacement(3.0, TABLE), "wordllama"),  # metric, not local
        (WordDropout(0.0, mask=["good"]), "wordllama", Laplace(2.0)),  # a mask adds nothing
        (Upper(), WordDropout(0.5), "wordllama", Laplace(2.0)),  # may mix words
        ("wordllama", Laplace(2.0)),
    ],
)
def test_nothing_is_claimed_where_the_proof_does_not_reach(steps: tuple[Any, ...]) -> None:
    assert PrivateEncoder(*steps).word_guarantee is None


def test_steps_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CapeletError, match="consumes texts, not vectors"):
        PrivateEncoder(Shift(), "wordllama")
    with pytest.raises(CapeletError, match="did you mean 'minilm'"):
        PrivateEncoder("minlm")


RECIPE = """
[[steps]]
step = "encoder"
name = "wordllama"

[[steps]]
step = "laplace"
epsilon = 8.0
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_makes_a_private_encoder_and_comes_back(tmp_path: Path) -> None:
    private = PrivateEncoder.from_recipe(written(tmp_path, RECIPE))
    assert private.guarantee == Guarantee(epsilon=8.0)
    again = PrivateEncoder.from_recipe(written(tmp_path, private.to_recipe()))
    assert again.recipe == private.recipe
    assert PrivateEncoder.from_steps(private.release(["a text"]).recipe).recipe == private.recipe


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ("", "at least one"),
        ("steps = 3", "at least one"),
        ("[[steps]]\nepsilon = 1", "needs a name"),
        ('[[steps]]\nstep = "laplas"', "did you mean 'laplace'"),
        ('[[steps]]\nstep = "laplace"', "needs 'epsilon'"),
        ('[[steps]]\nstep = "laplace"\nepsilon = 1\nsensitivity = 2', "no 'sensitivity'"),
        ('[[steps]]\nstep = "laplace"\nepsilon = -1', "epsilon"),
        ('[[steps]]\nstep = "laplace"\nepsilon = true', "epsilon"),
        ('[[steps]]\nstep = "encoder"\nnam = "minilm"', "did you mean 'name'"),
        (
            '[[steps]]\nstep = "encoder"\nname = "wordllama"\nfingerprint = "0"',
            "fingerprint differs",
        ),
        ('[[steps]]\nstep = "specimen:half-noise"\nepsilon = 1', "known to be broken"),
        ('seed = 42\n[[steps]]\nstep = "laplace"\nepsilon = 1', "it was given 'seed'"),
        ("[[steps", "not TOML"),
    ],
)
def test_recipes_that_do_not_hold_are_refused(tmp_path: Path, recipe: str, sentence: str) -> None:
    with pytest.raises(CapeletError, match=sentence):
        PrivateEncoder.from_recipe(written(tmp_path, recipe))


def test_specimens_only_when_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, '[[steps]]\nstep = "specimen:half-noise"\nepsilon = 1.0')
    assert PrivateEncoder.from_recipe(path, specimens=True).guarantee.status == "broken"
    with pytest.raises(CapeletError, match="cannot read the recipe"):
        PrivateEncoder.from_recipe(tmp_path / "none.toml")


def test_a_release_keeps_its_guarantee_in_its_file(tmp_path: Path) -> None:
    release = PrivateEncoder(Promise()).release(np.eye(4, dtype=np.float32))
    back = Release.load(release.save(tmp_path / "out.parquet"))
    np.testing.assert_array_equal(back.vectors, release.vectors)
    assert back.guarantee == release.guarantee and back.recipe_hash == release.recipe_hash
    assert back.word_guarantee is None
    dropped = PrivateEncoder(WordDropout(0.5), "wordllama", Laplace(2.0)).release(["a good text"])
    told = Release.load(dropped.save(tmp_path / "words.parquet")).word_guarantee
    assert told == dropped.word_guarantee == Guarantee(amplify(2.0, 0.5), unit="word")
    plain = PrivateEncoder().release(np.eye(2))
    assert Release.load(plain.save(tmp_path / "plain.parquet")).guarantee == NONE
    (tmp_path / "other.parquet").write_bytes(b"no")
    with pytest.raises(OutputError, match="not a release"):
        Release.load(tmp_path / "other.parquet")


# ---- fitted maps, and folders as encoders --------------------------------------------------------

# What noise promises behind a map that was learnt without a promise to its training texts.
LEARNT = Guarantee(8.0, training=NONE)
LEARNT_ONLY = replace(NONE, training=NONE)


def some_map(inside: int = 4, outside: int = 3, seed: int = 0) -> Map:
    random = np.random.default_rng(seed)
    return Map((affine(random.normal(size=(outside, inside)), random.normal(size=outside)),))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private encoder for ready vectors: a map, then noise."""
    return PrivateEncoder(some_map(), Laplace(8.0)).save(tmp_path / "private", {"method": "gr"})


def test_a_map_is_a_step_without_a_promise_of_its_own(tmp_path: Path) -> None:
    made = some_map()
    private = PrivateEncoder(made, Laplace(8.0))
    assert PrivateEncoder(made).guarantee == LEARNT_ONLY and PrivateEncoder(made).protects
    assert private.guarantee == PrivateEncoder(Laplace(8.0), made).guarantee == LEARNT
    entry = private.recipe["steps"][0]
    assert entry == {"step": "map", "file": "map.safetensors", "id": made.origin.id}
    place = private.save(tmp_path / "whole")
    again = PrivateEncoder.from_recipe(place / "recipe.toml")
    assert again.recipe == private.recipe  # the map lies beside the recipe
    assert PrivateEncoder.from_steps(private.recipe, folder=place).recipe == private.recipe
    with pytest.raises(CapeletError, match="not that of the private encoder"):
        PrivateEncoder.from_steps({"steps": private.recipe["steps"][:1]}, folder=place)
    rows = np.random.default_rng(1).normal(size=(5, 4))
    np.testing.assert_array_equal(
        PrivateEncoder(made).release(rows).vectors,
        PrivateEncoder(again.steps[0]).release(rows).vectors,
    )


def test_a_folder_comes_back_and_says_what_it_is(folder: Path) -> None:
    back = PrivateEncoder.load(folder)
    assert [step["step"] for step in back.recipe["steps"]] == ["map", "laplace"]
    assert PrivateEncoder.load(folder).recipe == back.recipe
    assert back.guarantee == LEARNT and is_private_encoder(str(folder))
    assert PrivateEncoder.from_recipe(folder).recipe == back.recipe
    said = json.loads((folder / "private.json").read_text())
    assert said["about"] == {"method": "gr"} and "8-local" in said["guarantee"]
    assert not is_private_encoder(str(folder.parent))
    assert {item.suffix for item in folder.iterdir()} == {".json", ".toml", ".safetensors"}


def test_a_tampered_map_is_refused(folder: Path) -> None:
    some_map(seed=1).save(folder)
    with pytest.raises(OutputError, match=r"'map.safetensors' .* its hash differs"):
        PrivateEncoder.load(folder)


def test_a_changed_recipe_is_refused(folder: Path) -> None:
    path = folder / "recipe.toml"
    path.write_text(path.read_text().replace("8.0", "80.0"))
    with pytest.raises(OutputError, match="was changed after it was written"):
        PrivateEncoder.load(folder)


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1])
def test_a_folder_of_another_format_is_refused(folder: Path, number: int) -> None:
    path = folder / MANIFEST
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "format": number}))
    with pytest.raises(OutputError, match=f"has format {number}, and this version reads {FORMAT}"):
        PrivateEncoder.load(folder)


@pytest.mark.parametrize("file", ["private.json", "recipe.toml", "map.safetensors"])
def test_a_folder_with_a_missing_file_is_refused(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(OutputError, match="needs its whole folder"):
        PrivateEncoder.load(folder)


def test_a_folder_that_says_nonsense_is_refused(folder: Path) -> None:
    for content, sentence in (("[]", "is broken"), ("{", "is broken"), ("{}", "not a private")):
        (folder / MANIFEST).write_text(content)
        with pytest.raises(OutputError, match=sentence):
            PrivateEncoder.load(folder)


# ---- one door ------------------------------------------------------------------------------------


def edit_epsilon(folder: Path) -> None:
    path = folder / "recipe.toml"
    content = path.read_text()
    assert "epsilon = 8.0" in content
    path.write_text(content.replace("epsilon = 8.0", "epsilon = 1000.0"))


@pytest.mark.parametrize("inside", ["", "recipe.toml"])
def test_an_edited_epsilon_is_refused_at_every_door(folder: Path, inside: str) -> None:
    door = folder / inside
    assert PrivateEncoder.from_recipe(door).guarantee == LEARNT  # the control
    edit_epsilon(folder)
    for attempt in (
        lambda: PrivateEncoder.from_recipe(door),
        lambda: PrivateEncoder.load(folder),
        lambda: PrivateEncoder(str(folder)),
    ):
        with pytest.raises(CapeletError, match=r"'recipe.toml' .* was changed after"):
            attempt()


def test_a_link_to_a_recipe_is_no_way_around_the_manifest(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "mine.toml"
    link.symlink_to(folder / "recipe.toml")
    assert PrivateEncoder.from_recipe(link).guarantee == LEARNT
    edit_epsilon(folder)
    with pytest.raises(CapeletError, match="was changed after"):
        PrivateEncoder.from_recipe(link)


def test_taking_the_manifest_away_opens_no_door(folder: Path) -> None:
    edit_epsilon(folder)
    (folder / MANIFEST).unlink()
    # Hashes that somebody puts elsewhere are no manifest.
    about = json.loads((folder / "private.json").read_text())
    digest = hashlib.sha256((folder / "recipe.toml").read_bytes()).hexdigest()
    forged = {**about, "format": 1, "recipe_sha256": digest}
    for content in (about, forged):
        (folder / "private.json").write_text(json.dumps(content))
        for door in (folder, folder / "recipe.toml"):
            with pytest.raises(CapeletError, match=r"manifest .* is missing"):
                PrivateEncoder.from_recipe(door)
        with pytest.raises(CapeletError, match=r"manifest .* is missing"):
            PrivateEncoder(str(folder))
    (folder / "private.json").unlink()
    with pytest.raises(CapeletError, match=r"names a learnt map.* recipe=\"private/mails\""):
        PrivateEncoder.from_recipe(folder / "recipe.toml")


def test_another_recipe_in_a_private_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "mine.toml").write_text(RECIPE)
    with pytest.raises(CapeletError, match="is not its recipe"):
        PrivateEncoder.from_recipe(folder / "mine.toml")
    assert PrivateEncoder.from_recipe(written(tmp_path, RECIPE)).guarantee == Guarantee(8.0)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ('step = "map"\nfile = "map.safetensors"', "names a learnt map, and there is no manifest"),
        ('step = "map"\nid = "0"', "needs 'file'"),
        ('step = "map"\nfile = "m"\nsha256 = "0"', "has no 'sha256'"),
        ('step = "map"\nfile = "m"\nhash = "0"', "has no 'hash'"),
        ('step = "encoder"\nname = "./encoder"', "names an encoder of its own, and there is no"),
    ],
)
def test_what_was_learnt_is_refused_without_its_manifest(
    tmp_path: Path, keys: str, sentence: str
) -> None:
    some_map().save(tmp_path)  # that it lies there is not enough
    with pytest.raises(CapeletError, match=sentence):
        PrivateEncoder.from_recipe(written(tmp_path, f"[[steps]]\n{keys}"))


def test_a_map_that_the_manifest_does_not_list_is_refused(folder: Path) -> None:
    """Also where the recipe's hash was put right: only listed files are read."""
    some_map().with_file("other.safetensors").save(folder)
    path, manifest = folder / "recipe.toml", json.loads((folder / MANIFEST).read_text())
    path.write_text(path.read_text().replace("map.safetensors", "other.safetensors"))
    manifest["files"]["recipe.toml"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CapeletError, match=r"'other.safetensors' is not in the manifest"):
        PrivateEncoder.load(folder)


def test_a_map_of_another_training_is_refused_by_its_id(folder: Path) -> None:
    """Also by whoever may write the manifest: the recipe names one training."""
    other = some_map()
    other.save(folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][other.file] = hashlib.sha256(other.content).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(CapeletError, match="its id differs"):
        PrivateEncoder.load(folder)


def test_a_folder_upon_a_folder_keeps_both_maps(folder: Path, tmp_path: Path) -> None:
    """Both maps have one file name at home: saved together, neither may overwrite the other."""
    upper = PrivateEncoder(some_map(3, 2, seed=1)).save(tmp_path / "upper")
    joined = PrivateEncoder(str(folder), str(upper))
    files = [step.get("file") for step in joined.recipe["steps"]]
    assert files == ["map.safetensors", None, "map-2.safetensors"]
    back = PrivateEncoder.load(joined.save(tmp_path / "joined"))
    assert back.recipe == joined.recipe and back.guarantee == LEARNT
    assert back.release(np.ones((2, 4))).vectors.shape == (2, 2)
    once = some_map(4, 4)
    same = PrivateEncoder(once, once)  # one map twice is one file
    assert len({step["file"] for step in same.recipe["steps"]}) == 1
    # Equal weights of two trainings are two maps: their texts are promised something each.
    twins = PrivateEncoder(once, some_map(4, 4))
    assert len({step["file"] for step in twins.recipe["steps"]}) == len(twins.origins) == 2


@pytest.fixture
def text_folder(tmp_path: Path) -> Path:
    """A private encoder for texts, whose map drops all but 8 coordinates."""
    keep = Map((affine(np.eye(8, 256), np.zeros(8)),))
    return PrivateEncoder("wordllama", keep).save(tmp_path / "texts")


def test_a_folder_is_an_encoder_name(text_folder: Path) -> None:
    private = PrivateEncoder(str(text_folder), Laplace(2.0))
    assert [step["step"] for step in private.recipe["steps"]] == ["encoder", "map", "laplace"]
    assert private.guarantee == replace(LEARNT, epsilon=2.0)
    texts = ["a good text", "another text"]
    plain = PrivateEncoder("wordllama").release(texts).vectors
    got = PrivateEncoder(str(text_folder)).release(texts).vectors
    np.testing.assert_allclose(got, plain[:, :8], rtol=1e-6)
    assert not private.unprotected().protects


def test_a_folder_is_audited_as_an_encoder(text_folder: Path) -> None:
    whole = load("reviews")
    assert whole.texts is not None
    corpus = Corpus(
        "some", texts=whole.texts[:300], private={"gender": whole.private["gender"][:300]}
    )
    findings = audit(corpus, str(text_folder), seeds=1, attackers=["logistic"])
    steps = findings.recipe["steps"]
    assert [step["step"] for step in steps] == ["encoder", "map"]
    assert any(row.kind == "attribute-inference" for row in findings.rows)
    assert any(row.metric == "recall_at_10" for row in findings.rows)  # against the plain vectors


def test_a_folder_encodes_a_file(text_folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(5)))
    private = PrivateEncoder.from_recipe(text_folder)
    done = encode(source, tmp_path / "out.parquet", private, text="text")
    assert done.rows == 5
    back = Release.load(tmp_path / "out.parquet")
    assert back.vectors.shape == (5, 8) and back.recipe == private.recipe


def test_encode_and_transform_are_the_vectors_of_a_release(tmp_path: Path) -> None:
    """The call that everybody tries first, on the object and at the package's door."""
    private = PrivateEncoder("wordllama")
    texts = ["one text", "another"]
    expected = private.release(texts).vectors
    for vectors in (
        private.encode(texts),
        private.transform(tuple(texts)),
        capelet.encode(texts, private),
    ):
        assert (vectors == expected).all()
    assert private.encode("one text").shape == expected[0].shape
    assert (capelet.encode(texts, "wordllama") == expected).all()
    recipe = tmp_path / "private.toml"
    recipe.write_text(private.to_recipe())
    assert (capelet.encode(texts, recipe=recipe) == expected).all()
    with pytest.raises(CapeletError, match="give encoder= or recipe=, not both"):
        capelet.encode(texts, "wordllama", recipe=recipe)
