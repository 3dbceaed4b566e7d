"""`capelet protect` on the command line: a folder that works, a search, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from capelet.cli import app
from capelet.findings import Findings
from capelet.release import PrivateEncoder
from terminal import CliRunner

COLUMNS = ["--vectors", "vector", "--label", "task", "--private", "named,other"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """900 ready vectors with a task and two planted secrets."""
    random = np.random.default_rng(5)
    task, named, other = random.integers(0, 2, (3, 900))
    vectors = random.normal(size=(900, 8)).astype(np.float32)
    for place, codes in enumerate((task, named, other)):
        vectors[:, place] += 4 * codes
    table = pa.table(
        {
            "vector": pa.array(list(vectors)),
            "task": [f"t{code}" for code in task],
            "named": [f"n{code}" for code in named],
            "other": [f"o{code}" for code in other],
            "single": ["same"] * 900,
        }
    )
    path = tmp_path_factory.mktemp("data") / "vectors.parquet"
    pyarrow.parquet.write_table(table, path)
    return path


def protect(data: Path, out: Path, *options: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["protect", str(data), *options, "--out", str(out)])
    return done.exit_code, done.stdout, done.stderr


def leak(folder: Path, target: str) -> float:
    return Findings.load(folder).value(
        kind="attribute-inference",
        target=target,
        metric="balanced_accuracy",
        attacker="strongest",
    )


def test_the_folder_holds_an_encoder_and_both_reports(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "private"
    quick = ["--seeds", "1", "--attackers", "logistic"]
    method = ["--method", "bottleneck", "--epsilon", "4"]
    code, said, _ = protect(data, out, *COLUMNS, *quick, *method)
    assert code == 0
    # The first line, before any verdict.
    assert said.startswith("what leaves: one of 2 symbols (a noisy guess of “task”), ")
    assert "of neighbours kept: not for search\n" in said
    assert "one of 2 symbols" in (out / "report.html").read_text()
    promise = "4-local differential privacy for each text that passes (proven); training texts: no"
    assert promise in said and promise in (out / "private.json").read_text()
    assert (
        promise in (out / "report.html").read_text() and promise in (out / "report.md").read_text()
    )
    assert leak(out / "before", "named") > 0.9
    assert leak(out, "named") < 0.65
    assert "not private towards the texts it was trained on" in (out / "report.html").read_text()
    assert PrivateEncoder(str(out)).guarantee.epsilon == 4
    page = (out / "report.html").read_bytes()
    again = CliRunner().invoke(app, ["report", str(out)])
    assert again.exit_code == 0
    assert (out / "report.html").read_bytes() == page


def test_a_released_file_of_training_rows_says_so_on_the_terminal_only(
    data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "private"
    quick = ["--seeds", "1", "--attackers", "logistic"]
    assert protect(data, out, *COLUMNS, *quick, "--method", "bottleneck", "--epsilon", "4")[0] == 0
    target, unseen = tmp_path / "all.parquet", tmp_path / "unseen.parquet"
    base = ["--vectors", "vector", "--recipe", str(out)]
    done = CliRunner().invoke(app, ["encode", str(data), str(target), *base])
    assert done.exit_code == 0 and "450 of 900 rows trained this encoder" in done.stderr
    assert "training texts: no guarantee" in done.stdout
    done = CliRunner().invoke(app, ["encode", str(data), str(unseen), *base, "--only-unseen"])
    assert done.exit_code == 0 and "they are left out" in done.stderr
    tables = [pyarrow.parquet.read_table(path) for path in (target, unseen)]
    assert [len(table) for table in tables] == [900, 450]
    # What the page calls one of 2 symbols is no more than that in the file, to the last bit.
    assert len({tuple(row) for row in tables[0]["vector"].to_pylist()}) == 2
    assert tables[0].schema.metadata == tables[1].schema.metadata
    audited = ["audit", str(data), *COLUMNS, *quick, "--recipe", str(out)]
    done = CliRunner().invoke(app, [*audited, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0 and "450 of 900 rows trained this encoder" in done.stderr
    assert done.stdout.startswith("what leaves: one of 2 symbols, ")
    # The control: for whoever has only the folder, nothing is recorded, and it is said.
    elsewhere = {"CAPELET_STATE": str(tmp_path / "elsewhere")}
    third = str(tmp_path / "third.parquet")
    done = CliRunner().invoke(app, ["encode", str(data), third, *base], env=elsewhere)
    assert done.exit_code == 0 and "is not recorded here" in done.stderr
    done = CliRunner().invoke(
        app, ["encode", str(data), third, *base, "--only-unseen"], env=elsewhere
    )
    assert done.exit_code == 2 and "cannot tell which rows trained" in done.stderr


def test_a_search_picks_a_point_or_says_how_near_it_came(data: Path, tmp_path: Path) -> None:
    quick = ["--seeds", "1", "--attackers", "logistic", "--trials", "2", "--json"]
    method = ["--method", "bottleneck", "--epsilon", "6"]
    wish = ["--min-utility", "0.6"]
    code, said, complained = protect(data, tmp_path / "found", *COLUMNS, *quick, *method, *wish)
    assert code == 0, complained
    assert Path(json.loads(said)["report"]).is_file()
    found = Findings.load(tmp_path / "found").artefacts["frontier"]
    assert sum(point["chosen"] for point in found["points"]) == 1
    wish = ["--min-utility", "1.0"]
    code, _, said = protect(data, tmp_path / "none", *COLUMNS, *quick, *method, *wish)
    assert code == 1
    assert "the nearest has" in said
    assert not (tmp_path / "none").exists()


def test_a_leakage_that_cannot_be_had_is_refused_and_nothing_is_called_private(
    data: Path, tmp_path: Path
) -> None:
    """900 vectors are too few to show five points, whatever the method does."""
    quick = ["--seeds", "2", "--attackers", "logistic", "--trials", "2"]
    method = ["--method", "leace", "--max-leakage", "0.05"]
    code, said, error = protect(data, tmp_path / "none", *COLUMNS, *quick, *method)
    assert code == 1 and not said
    assert "was shown to keep the attacker's gain at or below 0.05" in error
    assert "the nearest gains" in error and "private" not in error
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--method", "grr"], "did you mean 'gr'?"),
        (["--method", "ldp"], "needs an epsilon"),
        (["--purpose", "task", "--method", "gr+"], "leave --method and --keep out"),
        (["--purpose", "search", "--keep", "both"], "leave --method and --keep out"),
        (["--purpose", "serach"], "there is no use 'serach'; did you mean 'search'?"),
        (["--method", "bottleneck", "--epsilon", "0"], "epsilon is 0"),
        (["--method", "bottleneck", "--epsilon", "nan"], "epsilon is nan"),
        (["--method", "gr", "--epsilon", "3"], "adds no noise and takes no epsilon"),
        (["--method", "gr", "--hold-out", "namd"], "did you mean 'named'?"),
        (["--method", "gr", "--adversary-weight", "-1"], "adversary_weight is -1"),
        (["--method", "mdp", "--epsilon", "3"], "there are only vectors"),
        (["--method", "bottleneck", "--epsilon", "4", "--keep", "both"], "keeps a task"),
        (["--method", "gr", "--max-leakage", "2"], "--max-leakage is 2"),
        (["--method", "gr", "--max-leakage", "0.1", "--min-utility", "0.5"], "not both"),
        (["--method", "gr", "--hold-out", "named,other"], "needs a private attribute"),
        (["--method", "leace", "--train-epsilon", "8"], "cannot be trained with differential"),
        (["--method", "fx", "--train-epsilon", "0"], "--train-epsilon is 0"),
        (["--method", "fx", "--train-epsilon", "8", "--unit", "author"], "--author"),
        (["--method", "fx", "--train-epsilon", "8", "--unit", "word"], "the unit is 'word'"),
        (["--method", "fx", "--train-epsilon", "8", "--train-delta", "0.1"], "0.000563 at most"),
        (["--method", "fx", "--unit", "author"], "belong to --train-epsilon"),
        (["--method", "fx", "--train-epsilon", "8", "--split", "random"], "by itself"),
    ],
)
def test_bad_input_is_one_sentence(
    data: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    code, _, said = protect(data, tmp_path / "out", *COLUMNS, *options)
    assert code == 2
    assert sentence in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "method", "sentence"),
    [
        (["--purpose", "task"], "bottleneck", "needs an epsilon"),
        (["--purpose", "search", "--epsilon", "8"], "leace", "adds no noise and takes no epsilon"),
        (["--purpose", "texts", "--epsilon", "8"], "mdp", "there are only vectors"),
    ],
)
def test_a_use_names_its_method_and_reason_before_anything_else(
    data: Path, tmp_path: Path, options: list[str], method: str, sentence: str
) -> None:
    code, _, said = protect(data, tmp_path / "out", *COLUMNS, *options)
    assert code == 2
    reason, refusal = said.strip().splitlines()
    assert reason.startswith(f"capelet: for {options[1]} take {method}: ")
    assert sentence in refusal


def test_a_task_without_a_label_is_refused(data: Path, tmp_path: Path) -> None:
    columns = ["--vectors", "vector", "--private", "named"]
    code, _, said = protect(data, tmp_path / "out", *columns, "--purpose", "task", "--epsilon", "8")
    assert code == 2 and "there is no label" in said


def test_for_search_neighbours_are_kept_though_there_is_a_label(data: Path, tmp_path: Path) -> None:
    out, quick = tmp_path / "out", ["--seeds", "1", "--attackers", "logistic", "--json"]
    code, said, reason = protect(data, out, *COLUMNS, *quick, "--purpose", "search")
    assert code == 0 and "hides little" in reason
    about = Findings.load(out).provenance["protect"]
    assert about["method"] == "leace" and about["settings"]["keep"] == "neighbours"
    assert json.loads(said)["leaves"].startswith("8 numbers, ")


def test_an_epsilon_that_cannot_work_is_said_before_training(data: Path, tmp_path: Path) -> None:
    """Three rows in four of one class: ln 3 is needed to beat it."""
    table = pyarrow.parquet.read_table(data)
    skewed = table.set_column(1, "task", pa.array(["a", "a", "a", "b"] * 225))
    path = tmp_path / "skewed.parquet"
    pyarrow.parquet.write_table(skewed, path)
    method = ["--method", "bottleneck", "--epsilon", "1"]
    code, _, said = protect(path, tmp_path / "out", *COLUMNS, *method)
    assert code == 2
    assert "the least ε that can is 1.1" in said
    assert "--allow-useless-epsilon" in said


def test_a_private_attribute_of_one_class_is_refused(data: Path, tmp_path: Path) -> None:
    columns = ["--vectors", "vector", "--label", "task", "--private", "single"]
    code, _, said = protect(data, tmp_path / "out", *columns, "--method", "gr")
    assert code == 2
    assert "single" in said


def test_settings_of_the_papers_reach_the_training(data: Path, tmp_path: Path) -> None:
    quick = ["--seeds", "7,", "--attackers", "logistic", "--method", "gr", "--epochs", "2"]
    papers = [
        "--preset",
        "cape",
        "--adversary-loss",
        "bounded",
        "--adversary-weight",
        "named=1,other=0.3",
    ]
    code, _, complaint = protect(data, tmp_path / "out", *COLUMNS, *quick, *papers)
    assert code == 0, complaint
    settings = Findings.load(tmp_path / "out").provenance["protect"]["settings"]
    assert settings["adversary_weight"] == {"named": 1.0, "other": 0.3} and settings["width"] == 256
    assert settings["heads"] == {"units": 256, "dropout": 0.4}
    assert settings["adversary_loss"] == "bounded"
    assert settings["schedule"]["epochs"] == 2 and settings["schedule"]["rate"] == 1e-4
    head = PrivateEncoder(str(tmp_path / "out")).head
    assert head is not None and head.classes == ("t0", "t1")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--method", "gr", "--adversary-weight", "name=1"], "did you mean 'named'?"),
        (["--method", "gr", "--adversary-weight", "much"], "write 1, or gender=1,age=0.3"),
        (["--method", "leace", "--adversary-weight", "named=1"], "one weight for all attributes"),
        (["--method", "leace", "--batch", "8"], "does not read --batch"),
        (["--method", "gr+", "--epochs", "8"], "does not read --epochs"),
        (["--method", "gr", "--table", "glove"], "does not read --table; those that do are mdp"),
        (["--method", "fx", "--adversary-loss", "bounded"], "does not read --adversary-loss"),
        (["--method", "bottleneck", "--epsilon", "4", "--dropout", "0.4"], "not read --dropout"),
        (["--method", "gr", "--preset", "capes"], "did you mean 'cape'?"),
        (["--method", "gr", "--dropout", "2"], "dropout is 2"),
        (["--method", "fx", "--train-epsilon", "8", "--rate", "0.1"], "a schedule of its own"),
        (["--method", "gr", "--seeds", "1,1"], "the seed 1 stands twice"),
    ],
)
def test_options_that_do_not_apply_are_one_sentence(
    data: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    code, output, complaint = protect(data, tmp_path / "out", *COLUMNS, *options)
    assert code == 2 and output == "" and complaint.count("\n") == 1
    assert sentence in complaint and not (tmp_path / "out").exists()


def test_what_was_chosen_is_trained_and_not_searched(data: Path, tmp_path: Path) -> None:
    """64 was taken for "nothing chosen": a preset overruled it, and a search varied it."""
    quick = ["--seeds", "7,", "--attackers", "logistic", "--method", "fx", "--epochs", "2"]
    chosen = ["--preset", "cape", "--width", "64"]
    code, _, complaint = protect(data, tmp_path / "paper", *COLUMNS, *quick, *chosen)
    assert code == 0, complaint
    assert Findings.load(tmp_path / "paper").provenance["protect"]["settings"]["width"] == 64
    wish = ["--min-utility", "0.5", "--trials", "2", "--width", "64"]
    code, _, complaint = protect(data, tmp_path / "found", *COLUMNS, *quick, *wish)
    assert code == 0, complaint
    points = Findings.load(tmp_path / "found").artefacts["frontier"]["points"]
    assert [point["settings"] for point in points] == [{}]
