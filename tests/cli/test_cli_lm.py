"""`capelet lm`: train, go on, attack, and refuse with one sentence."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.cli import app
from capelet.findings import Findings
from terminal import CliRunner, Result

SIZES = ["--vocabulary", "70", "--width", "24", "--layers", "1", "--length", "8"]
BY_AUTHOR = ["--method", "dpsgd", "--unit", "author"]
SMALL = [*SIZES, "--epochs", "3", "--batch", "40", "--rate", "0.01", "--device", "cpu"]


def invoke(*words: Any) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def write_texts(path: Path, seed: int, rows: int = 600) -> Path:
    random = np.random.default_rng(seed)
    names = [f"{a}{b}" for a in "bdfglmnprs" for b in ("ako", "eli", "omu")]
    things = [f"{a}{b}rth" for a in "bglnpdfm" for b in "aeiou"]
    with path.open("w") as stream:
        for row in range(rows):
            text = f"the {random.choice(names)} has a {random.choice(things)} and a "
            text += str(random.choice(things))
            side = "left" if row % 12 < 6 else "right"
            stream.write(json.dumps({"body": text, "who": f"w{row % 12}", "side": side}) + "\n")
    return path


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(autouse=True)
def one_owner(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests here are run by the user who trained the models of `folder`."""
    monkeypatch.setenv("CAPELET_STATE", str(state))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, state: Path) -> Iterator[Path]:
    """Texts, other texts, and three models: with canaries, without, and of the other texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPELET_STATE", str(state))
        yield make_models(tmp_path_factory.mktemp("lm"))


def make_models(home: Path) -> Path:
    columns = ["--text", "body", "--author", "who"]
    mine = write_texts(home / "mine.jsonl", 1)
    other = write_texts(home / "other.jsonl", 2)
    canaries = ["--canaries", "1,20", "--canary-authors", "6", "--method", "triplet"]
    runs: list[list[Any]] = [
        [mine, "--out", home / "secret", *canaries],
        [mine, "--out", home / "plain"],
        [other, "--out", home / "other"],
    ]
    for words in runs:
        done = invoke("lm", "train", *words, *columns, *SMALL, "--json")
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout)["test_perplexity"] < 70
    return home


def columns(folder: Path, name: str = "mine.jsonl") -> list[Any]:
    return ["--data", folder / name, "--text", "body", "--author", "who"]


def test_a_folder_with_canaries_is_attacked_by_itself(folder: Path, tmp_path: Path) -> None:
    done = invoke("lm", "attack", folder / "secret", "--out", tmp_path, "--samples", 2000)
    assert done.exit_code == 0, done.stderr
    assert "exposure" in done.stdout and "report:" in done.stdout
    found = Findings.load(tmp_path)
    assert {row.kind for row in found} == {"extraction", "extraction-null"}
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<svg" in page and "http" not in page.split("</style>")[1]
    assert "| *never (control)* |" in (tmp_path / "report.md").read_text("utf-8")
    again = invoke("report", tmp_path)
    assert again.exit_code == 0 and (tmp_path / "report.html").read_text("utf-8") == page


def test_with_its_texts_every_attack_runs(folder: Path, tmp_path: Path) -> None:
    done = invoke(
        *["lm", "attack", folder / "plain", *columns(folder), "--out", tmp_path, "--json"],
        *["--reference", folder / "other", "--baseline", folder / "plain", "--subgroups", "side"],
    )
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["sentences"]
    found = Findings.load(tmp_path)
    kinds = {row.kind for row in found}
    assert {"utility", "membership", "membership-null", "extraction", "fairness"} <= kinds
    attackers = {row.attacker for row in found.select(kind="membership")}
    assert attackers == {"loss", "loss-against-reference"}
    subgroups = {row.subgroup for row in found.select(kind="fairness")}
    sizes = {"author size=largest", "author size=smallest"}
    assert subgroups == {*sizes, "side=left", "side=right"}
    for row in found.select(kind="fairness", metric="perplexity_ratio"):
        assert row.value == pytest.approx(1.0)  # the model is its own baseline
    assert "ako" not in (tmp_path / "findings.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--method", "dpsgd"], "needs epsilon or noise_multiplier"),
        (["--method", "dpsgd", "--epsilon", 4, "--delta", 0.01], "must be at most"),
        (["--method", "dpsgd", "--epsilon", 4, "--delta", 0.0019], "must be at most"),
        (["--method", "dpsgd", "--epsilon", 0.0001], r"cannot be reached in .* the least is 0\.0"),
        (["--method", "dpsgd", "--epsilon", "inf"], "epsilon is inf"),
        (["--method", "dpsgd", "--epsilon", 8, "--unit", "writer"], "no unit 'writer'"),
        (["--method", "triplet", "--unit", "author"], "'author' is of 'dpsgd'"),
        (["--method", "dpsgd", "--epsilon", 8, "--texts-per-author", 3], "of the unit 'author'"),
        (
            [*BY_AUTHOR, "--epsilon", 8, "--texts-per-author", 0],
            "texts-per-author is 0; it must be at least 1",
        ),
        ([*BY_AUTHOR, "--epsilon", 8, "--delta", 0.05], "must be at most"),
        (["--words", "private"], "paid from the epsilon of 'dpsgd'"),
        (["--method", "dpsgd", "--noise-multiplier", 1, "--words", "private"], "paid from epsilon"),
        (["--words", "public:glob"], "did you mean 'public:glove'"),
        (["--method", "tripled"], "did you mean 'triplet'"),
        (["--epsilon", 3], "'none' promises nothing"),
        (["--delta", 0.001], "'none' promises nothing"),
        (["--vocabulary", 0], "vocabulary is 0; it must be at least 1"),
        (["--network", "gru"], "no network 'gru'"),
        (["--canaries", "often"], "write 1,5,20,50"),
        (["--canaries", "1", "--length", 3], "so it would be cut off"),
        (["--batch", 0], "batch is 0"),
        (["--rate", "nan"], "rate is nan"),
        (["--strength", -1, "--method", "triplet"], "strength is -1"),
        (["--width", 0], "width is 0"),
        (["--device", "tpu"], "no device 'tpu'"),
        (["--position", "first"], "no position 'first'"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_sentence(
    folder: Path, tmp_path: Path, words: list[Any], said: str
) -> None:
    import re

    out = tmp_path / "model"
    columns_ = ["--text", "body", "--author", "who"]
    done = invoke("lm", "train", folder / "mine.jsonl", *columns_, *SMALL, *words, "--out", out)
    assert done.exit_code == 2, done.stdout
    assert re.search(said, done.stderr) and len(done.stderr.strip().splitlines()) == 1
    assert not out.exists()  # refused before any work


def test_small_data_cap_the_vocabulary(folder: Path, tmp_path: Path) -> None:
    words = [folder / "mine.jsonl", "--text", "body", "--author", "who", *SMALL, "--epochs", 1]
    done = invoke("lm", "train", *words, "--vocabulary", 10_000, "--out", tmp_path / "model")
    assert done.exit_code == 0, done.stderr
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    count = len(about["vocabulary"]) - 4
    assert about["sizes"]["words"] == count + 4
    line = f"the vocabulary is all {count} words of the training texts (10,000 were asked for)"
    assert done.stderr.count(line) == 1
    # The control: as many as were asked for, and nothing to say.
    fewer = invoke("lm", "train", *words, "--vocabulary", 20, "--out", tmp_path / "small")
    assert fewer.exit_code == 0 and "were asked for" not in fewer.stderr


def test_a_seed_below_zero_is_refused_by_the_option(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    columns_ = ["--text", "body", "--author", "who"]
    done = invoke("lm", "train", folder / "mine.jsonl", *columns_, "--seed", -1, "--out", out)
    assert done.exit_code == 2 and "--seed" in done.stderr and not out.exists()


@pytest.mark.parametrize("method", ["adversarial", "triplet"])
def test_one_author_cannot_be_hidden_and_none_must_be_named(tmp_path: Path, method: str) -> None:
    rows = map(json.loads, write_texts(tmp_path / "mine.jsonl", 3, 60).read_text().splitlines())
    path = tmp_path / "one.jsonl"
    path.write_text("\n".join(json.dumps({**row, "who": "ann"}) for row in rows))
    words = [path, "--text", "body", *SMALL, "--vocabulary", 50, "--out", tmp_path / "model"]
    alone = invoke("lm", "train", *words, "--method", method, "--author", "who")
    assert alone.exit_code == 2 and "needs at least two; there is one" in alone.stderr
    unnamed = invoke("lm", "train", *words, "--method", method)
    assert unnamed.exit_code == 2 and "name their column with --author" in unnamed.stderr
    plain = invoke("lm", "train", *words, "--author", "who")
    assert plain.exit_code == 0, plain.stderr  # nobody is hidden, so one author will do


def test_a_training_that_diverges_says_so_and_can_be_repeated(folder: Path, tmp_path: Path) -> None:
    words = [folder / "mine.jsonl", "--text", "body", *SMALL, "--out", tmp_path / "model"]
    done = invoke("lm", "train", *words, "--rate", 1e9, "--epochs", 1, "--json")
    assert done.exit_code == 2 and "has diverged" in done.stderr.strip().splitlines()[-1]
    assert not list((tmp_path / "model").iterdir())
    assert invoke("lm", "train", *words, "--epochs", 1).exit_code == 0


def test_an_interrupted_training_goes_on_where_it_was(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capelet.language.learners import NextWord

    out = tmp_path / "model"
    words = ["lm", "train", folder / "mine.jsonl", "--text", "body", "--author", "who", *SMALL]
    step = NextWord.step

    def interrupted(learner: NextWord, batch: Any, position: Any) -> Any:
        if position.epoch == 1:
            raise KeyboardInterrupt
        return step(learner, batch, position)

    with monkeypatch.context() as patch:
        patch.setattr(NextWord, "step", interrupted)
        stopped = invoke(*words, "--out", out)
    assert stopped.exit_code == 130
    assert "run the same command again" in stopped.stderr
    assert "was interrupted" in invoke("lm", "attack", out).stderr
    other = invoke(*words, "--out", out, "--rate", 0.02)
    assert other.exit_code == 2 and "other settings or data" in other.stderr
    done = invoke(*words, "--out", out)
    assert done.exit_code == 0 and "epoch 1 of" not in done.stderr, done.stderr
    weights = [
        json.loads((place / "manifest.json").read_text("utf-8"))["files"]["model.safetensors"]
        for place in (out, folder / "plain")
    ]
    assert weights[0] == weights[1]  # as if nothing had happened


def test_an_author_needs_two_texts_of_which_the_division_may_take_one(tmp_path: Path) -> None:
    lines = write_texts(tmp_path / "mine.jsonl", 3).read_text("utf-8").splitlines()
    two = [{**json.loads(line), "who": f"w{row // 2}"} for row, line in enumerate(lines)]
    one = [*two[:-1], {**two[-1], "who": "alone"}]
    words = ["--text", "body", "--author", "who", *SMALL, "--method", "triplet"]
    for rows, code in ((two, 0), (one, 2)):
        path = tmp_path / f"{code}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        done = invoke("lm", "train", path, *words, "--out", tmp_path / f"model{code}")
        assert done.exit_code == code, done.stderr
    assert "2 of 301 authors have only one sample" in done.stderr


def test_dp_sgd_states_its_epsilon_in_the_folder(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "private"
    done = invoke(
        *["lm", "train", folder / "mine.jsonl", "--text", "body", *SMALL, "--out", out],
        *["--method", "dpsgd", "--epsilon", 8],
    )
    assert done.exit_code == 0, done.stderr
    about = json.loads((out / "model.json").read_text("utf-8"))
    promise = about["guarantee"]
    # Its words were read off the texts, which no proof covers.
    assert 7.5 < promise["epsilon"] <= 8 and promise["status"] == "claimed"
    assert "read off the texts" in promise["caveat"]
    assert promise["delta"] <= 480**-1.1  # some 480 texts train
    assert promise["unit"] == "record" and "not covered as a whole" in promise["caveat"]
    assert "guarantee: (7" in done.stdout or "guarantee: (8" in done.stdout
    assert "outside the promise" in done.stdout
    assert not (out / "checkpoint.safetensors").exists()
    assert mode_of(out / "model.safetensors") == mode_of(out / "model.json") == 0o600
    assert mode_of(out) == 0o700


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_model_without_a_promise_is_readable_by_its_owner_only(folder: Path) -> None:
    """It may give the texts back, so it is as private as they are."""
    for name in ("model.safetensors", "model.json", "canaries.json"):
        assert mode_of(folder / "secret" / name) == 0o600


def write_words(path: Path) -> Path:
    path.write_text("the\nhas\na\nand\nbako\nbarth\n", encoding="utf-8")
    return path


# Everything that `model.json` of a model with a promise says, and why it may.
SETTINGS = {"capelet", "method", "epochs", "batch", "rate", "batching", "seed", "length"}
PUBLIC = {"network", "sizes", "public_vocabulary", "vocabulary_source", "vocabulary"}
LISTED = PUBLIC | {"guarantee", "training", "id"}  # the promise itself, below, and a random number
# All of it follows from settings and the noised number of units.
PRICE = {"noise_multiplier", "epsilon", "delta", "rate", "steps", "unit", "units"}
PRICE |= {"count_epsilon", "words_epsilon"}


@pytest.mark.parametrize("unit", ["record", "author"])
def test_what_leaves_with_a_promise_is_public_noised_or_absent(
    folder: Path, tmp_path: Path, state: Path, unit: str
) -> None:
    out = tmp_path / "private"
    source = folder / "mine.jsonl"
    words = ["--words", write_words(tmp_path / "words.txt"), "--method", "dpsgd", "--epsilon", 8]
    done = invoke(
        *["lm", "train", source, "--text", "body", "--author", "who", *SMALL, *words],
        *["--unit", unit, "--batch", 40 if unit == "record" else 4, "--out", out],
    )
    assert done.exit_code == 0, done.stderr
    assert {path.name for path in out.iterdir()} == {
        "manifest.json",
        "model.json",
        "model.safetensors",
    }
    for name in ("model.safetensors", "model.json"):
        assert mode_of(out / name) == 0o600  # its owner may hand it on
    text = (out / "model.json").read_text("utf-8")
    about = json.loads(text)
    assert set(about) == LISTED
    assert set(about["training"]) == SETTINGS | {"privacy"}
    assert set(about["training"]["privacy"]) == PRICE
    promise, privacy = about["guarantee"], about["training"]["privacy"]
    assert promise["status"] == "proven" and promise["unit"] == unit
    assert promise["notion"] == "central" and promise["neighbours"] == "add-remove"
    assert promise["epsilon"] <= 8 and privacy["rate"] == min(
        1, about["training"]["batch"] / privacy["units"]
    )
    # The digest of the texts is with the owner, in no file of the folder, in no file name.
    record = json.loads((state / "language" / f"{about['id']}.json").read_text("utf-8"))
    assert all(record["digest"] not in path.read_text("latin1") for path in out.iterdir())
    assert mode_of(state / "language" / f"{about['id']}.json") == 0o600
    assert mode_of(state / "language") == 0o700
    assert "w3" not in text  # nor is any author


def test_an_attack_on_a_promise_writes_its_findings_elsewhere(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "private"
    words = ["--words", write_words(tmp_path / "words.txt"), "--method", "dpsgd", "--epsilon", 8]
    done = invoke(
        "lm", "train", folder / "mine.jsonl", *columns(folder)[2:], *SMALL, *words, "--out", out
    )
    assert done.exit_code == 0, done.stderr
    inside = invoke("lm", "attack", out, *columns(folder))
    assert inside.exit_code == 2 and "say with --out" in inside.stderr
    assert not (out / "findings.json").exists()
    outside = invoke("lm", "attack", out, *columns(folder), "--out", tmp_path / "run")
    assert outside.exit_code == 0, outside.stderr
    about = json.loads((tmp_path / "run" / "findings.json").read_text("utf-8"))
    assert about["provenance"]["data"] == {}


def test_without_the_owner_s_record_the_texts_cannot_be_checked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPELET_STATE", str(tmp_path / "somebody-else"))
    done = invoke("lm", "attack", folder / "plain", *columns(folder), "--out", tmp_path / "run")
    assert done.exit_code == 2 and "is recorded where it was trained" in done.stderr
    # What lies in the folder can be attacked by anybody who has it.
    alone = invoke("lm", "attack", folder / "secret", "--out", tmp_path, "--samples", 2000)
    assert alone.exit_code == 0, alone.stderr


def test_no_folder_confirms_a_guessed_text_and_none_names_an_author(folder: Path) -> None:
    """Whoever knows all texts but one had only to hash them with each guess of the last."""
    from capelet.language.records import digest_of

    lines = (folder / "mine.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["body"] for line in lines]
    for name in ("secret", "plain"):
        for path in (folder / name).iterdir():
            content = path.read_text("latin1")
            assert digest_of(texts) not in content
    canaries = json.loads((folder / "secret" / "canaries.json").read_text("utf-8"))
    assert {canary["author"] for canary in canaries} <= {f"author {n}" for n in range(1, 13)}


def test_an_unnamed_author_cannot_be_the_unit_and_one_alone_neither(
    folder: Path, tmp_path: Path
) -> None:
    words = ["--text", "body", *SMALL, *BY_AUTHOR, "--epsilon", 8, "--out", tmp_path / "model"]
    unnamed = invoke("lm", "train", folder / "mine.jsonl", *words)
    assert unnamed.exit_code == 2 and "'author' needs authors" in unnamed.stderr
    rows = map(json.loads, (folder / "mine.jsonl").read_text().splitlines())
    path = tmp_path / "one.jsonl"
    # One person in two spellings is one person.
    lines = [{**row, "who": "ann " if row["side"] == "left" else "ann"} for row in rows]
    path.write_text("\n".join(map(json.dumps, lines)))
    alone = invoke("lm", "train", path, *words, "--author", "who")
    assert alone.exit_code == 2 and "needs at least two; there is one" in alone.stderr
    assert not (tmp_path / "model").exists()


def test_a_training_killed_at_its_very_end_is_no_model_yet(folder: Path, tmp_path: Path) -> None:
    """The checkpoint has exact figures, so a folder that still holds it must not be handed on."""
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder / "secret", copy)
    assert invoke("lm", "attack", copy, "--out", tmp_path / "run", "--samples", 2000).exit_code == 0
    (copy / "checkpoint.safetensors").write_bytes(b"")
    assert "was interrupted" in invoke("lm", "attack", copy).stderr


def full_after(writes: int, sync: Callable[[int], None]) -> Callable[[int], None]:
    """A disk that takes so many files."""
    counter = iter(range(writes))

    def fsync(handle: int) -> None:
        if next(counter, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    return fsync


def test_a_full_disk_at_any_write_is_one_sentence_and_loses_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["lm", "train", folder / "mine.jsonl", "--text", "body", *SMALL, "--json", "--out"]
    whole = json.loads(invoke(*words, tmp_path / "whole").stdout)
    out, writes = tmp_path / "out", 0
    while True:
        with monkeypatch.context() as patch:
            patch.setattr("capelet.files.os.fsync", full_after(writes, os.fsync))
            done = invoke(*words, out)
        if done.exit_code == 0:
            break
        assert done.exit_code == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "(No space left on device); make room" in done.stderr
        assert not list(tmp_path.rglob("*.part"))
        # No model yet, though all of its files but one may be there.
        assert "was interrupted" in invoke("lm", "attack", out).stderr or not list(out.iterdir())
        writes += 1
    # Epochs are kept from one run to the next, so the last one writes weights, description,
    # manifest and record only.
    assert writes == 4
    assert json.loads(done.stdout) == {**whole, "model": str(out)}
    files = ["manifest.json", "model.json", "model.safetensors"]
    assert sorted(path.name for path in out.iterdir()) == files


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 99}, "has format 99, and this version reads 1"),
        ({"files": {"model.json": "0"}}, "was changed after it was written"),
        ({"files": {}}, "not in the manifest"),
    ],
)
def test_a_folder_of_another_version_or_a_broken_one_is_refused(
    folder: Path, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder / "secret", copy)
    about = json.loads((copy / "manifest.json").read_text("utf-8"))
    (copy / "manifest.json").write_text(json.dumps({**about, **change}), encoding="utf-8")
    done = invoke("lm", "attack", copy)
    assert done.exit_code == 2 and said in done.stderr


def test_attacks_refuse_what_would_mislead(folder: Path, tmp_path: Path) -> None:
    cases = [
        ([folder / "plain"], "trained without canaries"),
        ([folder / "plain", *columns(folder, "other.jsonl")], "not the texts"),
        (
            [folder / "plain", *columns(folder), "--reference", folder / "secret"],
            "trained on the same texts",
        ),
        ([tmp_path], "give a folder that `capelet lm train` wrote"),
    ]
    for words, said in cases:
        done = invoke("lm", "attack", *words, "--out", tmp_path / "out")
        assert done.exit_code == 2 and said in done.stderr, done.stderr
    (tmp_path / "checkpoint.safetensors").write_bytes(b"")
    assert "was interrupted" in invoke("lm", "attack", tmp_path).stderr


def test_the_help_has_an_example() -> None:
    for command in ("train", "attack"):
        assert "Example" in invoke("lm", command, "--help").stdout
