"""The command line: exit codes, one sentence for bad input, nothing written, a gate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from capelet.cli import app
from capelet.cli.catalogue import fill_names
from capelet.cli.commands import COMMANDS, GROUPS, LONG
from capelet.findings import Findings
from capelet.mechanisms import Laplace
from capelet.release import PrivateEncoder, Release
from terminal import CliRunner

WORDS = [
    "the",
    "train",
    "was",
    "late",
    "again",
    "and",
    "the",
    "food",
    "cold",
    "but",
    "staff",
    "were",
    "kind",
    "to",
    "my",
    "old",
    "dog",
    "today",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """240 texts; `open` shows in the words, `shuffled` does not."""
    random = np.random.default_rng(0)
    rows = []
    for row in range(240):
        secret = bool(random.integers(2))
        words = list(random.choice(WORDS, size=12)) + (
            ["football", "beer"] if secret else ["ballet", "roses"]
        )
        rows.append(
            {
                "text": " ".join(words) + f" {row}",
                "open": "yes" if secret else "no",
                "shuffled": "yes" if random.integers(2) else "no",
                "stars": int(random.integers(1, 4)),
                "single": "same",
                "rare": "a" if row else "b",
                "empty": "" if row % 9 == 0 else "x",
                "v": [float(x) for x in random.normal(size=4)],
                "ragged": [1.0] * (1 + row % 2),
                "broken": [float("nan"), 1.0],
            }
        )
    path = tmp_path_factory.mktemp("data") / "data.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    return path


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(item) for item in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


QUICK = ("--encoder", "wordllama", "--seeds", "2", "--attackers", "logistic,knn")


def test_audit_writes_a_report_and_says_its_verdict(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, said, _ = call(
        "audit",
        data,
        "--text",
        "text",
        "--label",
        "stars",
        "--private",
        "open,shuffled",
        *QUICK,
        "--out",
        out,
    )
    assert code == 0
    assert "[strong leak] open:" in said and f"report: {out / 'report.html'}" in said
    assert {item.name for item in out.iterdir()} == {
        "report.html",
        "report.md",
        "findings.json",
        "artefacts",
    }
    findings = Findings.load(out)
    assert findings.provenance["data"]["name"] == "data.parquet"
    assert "football" not in (out / "findings.json").read_text() + (out / "report.html").read_text()


def test_json_and_gate(data: Path, tmp_path: Path) -> None:
    base = (
        "audit",
        data,
        "--text",
        "text",
        *QUICK,
        "--out",
        tmp_path / "g",
        "--fail-over",
        "0.05",
        "--json",
    )
    code, said, _ = call(*base, "--private", "open,shuffled")
    summary = json.loads(said)
    assert code == 1 and summary["over"] == ["open"]
    assert {item["target"] for item in summary["verdicts"]} == {"open", "shuffled"}
    code, said, _ = call(*base, "--private", "shuffled")
    assert code == 0 and json.loads(said)["over"] == []


def test_a_gate_may_ask_for_what_was_shown(data: Path, tmp_path: Path) -> None:
    base = ("audit", data, "--text", "text", *QUICK, "--out", tmp_path / "g")
    code, said, _ = call(*base, "--private", "open", "--require-under", "0.05")
    assert code == 1 and "gate --require-under 0.05: failed. Shown with 95 % confidence" in said
    code, said, _ = call(*base, "--private", "shuffled", "--require-under", "0.9")
    assert code == 0 and "gate --require-under 0.9: passed." in said
    code, said, _ = call(*base, "--private", "shuffled", "--require-under", "0.02")
    assert code == 3 and "inconclusive. Not shown to lie under 2.0 points" in said
    code, said, _ = call(
        *base, "--private", "shuffled", "--fail-over", "0.5", "--min-victims", "9999", "--json"
    )
    decisions = {item["gate"]: item["decision"] for item in json.loads(said)["gates"]}
    assert code == 3
    assert decisions == {"--fail-over 0.5": "passed", "--min-victims 9999": "inconclusive"}


def test_a_fault_of_ours_ends_with_70_and_quotes_nothing(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise ValueError("the text was: my secret diary")

    monkeypatch.setattr("capelet.cli.audit.read_corpus", break_down)
    arguments = ("audit", data, "--text", "text", "--private", "open", "--out", tmp_path / "f")
    code, said, error = call(*arguments)
    assert code == 70 and not said and error.count("\n") == 1
    assert "a fault of Capelet" in error and "ValueError at audit.py:" in error
    assert "diary" not in error and "Traceback" not in error
    monkeypatch.setenv("CAPELET_TRACEBACK", "1")
    code, _, error = call(*arguments)
    assert code == 70 and "Traceback" in error


def test_vectors_only(data: Path, tmp_path: Path) -> None:
    code, said, _ = call(
        "audit",
        data,
        "--vectors",
        "v",
        "--private",
        "open",
        "--seeds",
        "1",
        "--out",
        tmp_path / "v",
    )
    assert code == 0 and "open:" in said


def test_seeds_may_be_a_list(data: Path, tmp_path: Path) -> None:
    quick = ("--private", "open", "--attackers", "logistic", "--out", tmp_path / "list")
    code, _, _ = call("audit", data, "--vectors", "v", *quick, "--seeds", "7,")
    assert code == 0
    split = json.loads((tmp_path / "list" / "findings.json").read_text())["provenance"]["split"]
    assert split["seeds"] == [7]


def test_official_parts_come_from_a_column(data: Path, tmp_path: Path) -> None:
    table = pa.parquet.read_table(data)
    parts = ["test" if row % 4 == 0 else "train" for row in range(len(table))]
    path = tmp_path / "parts.parquet"
    pa.parquet.write_table(table.append_column("official", [parts]), path)
    quick = ("--private", "open", "--attackers", "logistic", "--seeds", "1", "--vectors", "v")
    out = tmp_path / "out"
    code, _, _ = call("audit", path, *quick, "--split", "column:official", "--out", out)
    assert code == 0
    split = json.loads((out / "findings.json").read_text())["provenance"]["split"]
    assert split["kind"] == "column:official" and split["sizes"]["victims"] == parts.count("test")
    assert "as the column &#39;official&#39; has it" in (out / "report.html").read_text()
    other = tmp_path / "other"
    code, _, complaint = call("audit", path, *quick, "--split", "column:offical", "--out", other)
    assert code == 2 and "'official'" in complaint and not other.exists()


def test_vectors_beside_texts_are_what_is_audited(data: Path, tmp_path: Path) -> None:
    columns = ("--text", "text", "--vectors", "v", "--private", "open")
    quick = ("--seeds", "1", "--attackers", "logistic")
    assert call("audit", data, *columns, *quick, "--out", tmp_path / "b")[0] == 0
    findings = Findings.load(tmp_path / "b")
    assert findings.provenance["encoder"] == {"name": "ready vectors", "dimension": 4}
    assert findings.select(attacker="tf-idf")


def test_a_recipe_is_audited_with_its_ceiling(data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        '[[steps]]\nstep = "encoder"\nname = "wordllama"\n'
        '[[steps]]\nstep = "laplace"\nepsilon = 0.5\n'
    )
    columns = ("--text", "text", "--label", "stars", "--private", "open", "--recipe", recipe)
    code, said, _ = call("audit", data, *columns, "--seeds", "2", "--out", tmp_path / "p")
    # The noise is fresh and the victims are few: the verdict is a draw, what it permits is not.
    assert code == 0 and "permits nobody more than 62" in said
    findings = Findings.load(tmp_path / "p")
    (row,) = findings.select(
        kind="attribute-inference", attacker="strongest", metric="balanced_accuracy"
    )
    assert row.ceiling == pytest.approx(1 / (1 + np.exp(-0.5)))
    assert row.low is not None and row.low < row.ceiling
    assert {item.metric for item in findings.select(kind="deviation")} == {
        "euclidean",
        "cosine_distance",
        "separability",
    }
    assert findings.select(target="neighbours", metric="recall_at_10")
    assert "0.5-local differential privacy" in (tmp_path / "p" / "report.html").read_text()
    code, _, complained = call("audit", data, *columns[:-1], tmp_path / "no.toml")
    assert code == 2 and "cannot read the recipe" in complained


def test_report_again_and_two_side_by_side(data: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert (
            call(
                "audit",
                data,
                "--text",
                "text",
                "--private",
                "open",
                *QUICK,
                "--out",
                tmp_path / name,
            )[0]
            == 0
        )
    before = (tmp_path / "a" / "report.html").read_text()
    (tmp_path / "a" / "report.html").unlink()
    assert call("report", tmp_path / "a")[0] == 0
    assert (tmp_path / "a" / "report.html").read_text() == before
    code, said, _ = call(
        "report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "both", "--json"
    )
    assert code == 0 and Path(json.loads(said)["report"]).exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.parquet", "--text", "text"], "there is no file"),
        (["DATA", "--text", "text", "--derive", "names:x"], "names:10"),
        (["DATA", "--text", "txet", "--private", "open"], "did you mean 'text'"),
        (["DATA", "--text", "text", "--private", "opne"], "did you mean 'open'"),
        (["DATA", "--private", "text"], "which column"),
        (["DATA", "--text", "text"], "nothing to measure"),
        (["DATA", "--text", "text", "--private", "single"], "has a single class"),
        (["DATA", "--text", "text", "--private", "rare"], "the smallest on 1)"),
        (["DATA", "--text", "empty", "--private", "open"], "27 of 240 rows are empty"),
        (["DATA", "--text", "stars", "--private", "open"], "must hold texts"),
        (
            ["DATA", "--text", "text", "--private", "open", "--where", "stars == 99"],
            "no rows where",
        ),
        (
            [
                "DATA",
                "--text",
                "text",
                "--private",
                "open",
                "--where",
                "stars <= 0 or stars == 1 and open == 'x'",
            ],
            "no rows",
        ),
        (["DATA", "--vectors", "ragged", "--private", "open"], "lengths 1, 2"),
        (["DATA", "--vectors", "broken", "--private", "open"], "NaN or infinite"),
        (
            ["DATA", "--text", "text", "--private", "open", "--encoder", "minlm"],
            "did you mean 'minilm'",
        ),
        (
            ["DATA", "--text", "text", "--private", "open", "--split", "by_autor"],
            "did you mean 'by_author'",
        ),
        (
            ["DATA", "--text", "text", "--private", "open", "--attackers", "knnn"],
            "did you mean 'knn'",
        ),
        (["DATA", "--text", "text", "--private", "open", "--bins", "stars=x"], "write age=30,50"),
        (["DATA", "--text", "text", "--private", "open", "--seeds", "two"], "write 3 for three"),
        (["DATA", "--text", "text", "--private", "open", "--seeds", "1,x"], "write 3 for three"),
        (["DATA", "--text", "text", "--private", "open", "--seeds", "1,1"], "seed 1 stands twice"),
        (["DATA", "--text", "text", "--private", "open", "--seeds", "-1,2"], "whole number from 0"),
        (["DATA", "--text", "text", "--private", "open", "--seeds", ","], "empty list"),
        (["DATA", "--text", "text", "--private", "open", "--seeds", "10001"], "at most 10,000"),
        (["DATA", "--text", "text", "--derive", "names"], "no person name"),
        (["reviws", "--private", "open"], "did you mean 'reviews'"),
        (["DATA", "--text", "text", "--private", "open", "--fail-over", "10"], "from 0 to 1"),
        (
            ["DATA", "--text", "text", "--label", "stars", "--fail-over", "0.1"],
            "an attribute to watch",
        ),
        (["reviews", "--label", "stars"], "knows its own columns"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    data: Path, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    out = tmp_path / "out"
    given = [str(data) if item == "DATA" else item for item in arguments]
    code, said, complained = call("audit", *given, "--out", out)
    assert code == 2 and said == ""
    assert complained.startswith("capelet: ") and complained.count("\n") == 1
    assert sentence in complained
    assert not out.exists()


def test_fewer_than_sixty_rows(data: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.parquet"
    pa.parquet.write_table(pa.parquet.read_table(data).slice(0, 59), small)
    code, _, complained = call(
        "audit", small, "--text", "text", "--private", "open", "--out", tmp_path / "o"
    )
    assert code == 2 and "59 usable rows" in complained


def test_unreadable_file_pickle_folder_and_unwritable_place(data: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"no parquet")
    assert call("audit", broken, "--text", "text", "--out", tmp_path / "o")[0] == 2
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"x")
    code, _, complained = call(
        "audit",
        data,
        "--text",
        "text",
        "--private",
        "open",
        "--encoder",
        tmp_path / "model",
        "--out",
        tmp_path / "o",
    )
    assert code == 2 and "safetensors" in complained
    (tmp_path / "file").write_text("")
    code, _, complained = call(
        "audit", data, "--text", "text", "--private", "open", "--out", tmp_path / "file"
    )
    assert code == 2 and "cannot write" in complained
    assert not (tmp_path / "o").exists()


def test_a_label_that_is_the_leak_is_only_a_warning(data: Path, tmp_path: Path) -> None:
    code, said, _ = call(
        "audit",
        data,
        "--text",
        "text",
        "--label",
        "open",
        "--private",
        "open",
        *QUICK,
        "--out",
        tmp_path / "w",
    )
    assert code == 0 and "the task is the leak" in said


def test_report_of_nothing(tmp_path: Path) -> None:
    code, _, complained = call("report", tmp_path)
    assert code == 2 and "no findings.json" in complained


def test_list_and_cache() -> None:
    code, said, _ = call("list", "--json")
    rooms = json.loads(said)
    assert code == 0 and {"minilm", "wordllama", "glove"} <= set(rooms["encoders"])
    assert set(rooms["attackers"]) == {"logistic", "mlp", "boosting", "knn", "kernel"}
    assert "wasserstein" in rooms["splits"] and "here" in rooms["data sets"]["reviews"]
    assert all(line for room in rooms.values() for line in room.values())
    assert call("list")[0] == 0
    assert call("cache", "where")[1].strip() == os.environ["CAPELET_CACHE"]


def test_cache_clear_and_no_cache(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPELET_CACHE", str(tmp_path / "cache"))
    base = ("audit", data, "--text", "text", "--private", "open", *QUICK, "--out", tmp_path / "c")
    assert call(*base, "--no-cache")[0] == 0
    assert not list((tmp_path / "cache").rglob("*.sqlite*"))
    assert call(*base)[0] == 0
    assert list((tmp_path / "cache").rglob("*.sqlite*"))
    assert json.loads(call("cache", "clear", "--json")[1])["bytes"] > 0
    assert not list((tmp_path / "cache").rglob("*.sqlite*"))


@pytest.mark.parametrize("command", ["", *GROUPS, *COMMANDS])
def test_help(command: str) -> None:
    code, printed, _ = call(*command.split(), "--help")
    assert code == 0 and "{" not in printed.split("╭")[-1]  # every name was filled in
    if command in COMMANDS:
        assert f"Example: capelet {command}" in " ".join(printed.split())


def test_names_of_a_table_within_a_sentence() -> None:
    names = "random, balanced, by_author, wasserstein"
    assert fill_names("auto, {splits:or}.") == f"auto, {names} or keyed."
    assert fill_names("{splits}, or all") == f"{names}, keyed, or all"
    with pytest.raises(KeyError):
        fill_names("{no such table}")


def test_help_with_names_loads_no_model_framework() -> None:
    code = (
        "import sys; from capelet.cli import app\n"
        "app(['audit', '--help']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "wasserstein" in done.stdout and done.stdout.splitlines()[-1] == "False"


# What takes seconds to import.
HEAVY = {"torch", "sklearn", "scipy", "transformers", "pyarrow", "numpy", "pandas"}


@pytest.mark.parametrize("command", [[], ["audit"], ["protect"], ["encode"], ["lm", "train"]])
def test_the_help_of_the_real_command_imports_nothing_heavy(command: list[str]) -> None:
    """It must answer at once, on any machine; names of tables are read off their files."""
    done = subprocess.run(
        [Path(sys.executable).parent / "capelet", *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        # Python then lists every import on standard error.
        env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"},
    )
    imports = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "Usage: capelet" in done.stdout and "capelet.cli.commands" in imports
    assert not imports & HEAVY


# Heavy packages cannot be imported: what is printed all the same was printed before them.
WITHOUT_HEAVY = f"""
import sys

class Refusal:
    def find_spec(self, name, *_):
        if name in {HEAVY}:
            sys.exit(75)

sys.meta_path.insert(0, Refusal())
from capelet.cli import main
sys.argv[0] = "capelet"
main()
"""


@pytest.mark.parametrize("path", LONG)
def test_a_long_command_says_what_it_begins_before_anything_heavy_is_imported(
    path: str, data: Path, tmp_path: Path
) -> None:
    private = recipe(tmp_path, LAPLACE)
    source, out = [str(data)], ["--out", str(tmp_path / "new")]
    arguments = {
        "check": source,
        "encode": [*source, str(tmp_path / "new"), "--recipe", str(private)],
        "verify": ["--recipe", str(private)],
        "invert": [*source, "--text", "text", *out],
        "membership": [*source, "--member", "open", *out],
        "dual utility": source,
        "lm attack": [str(tmp_path), *out],
        "study run": [*source, *out],
        "study check": source,
        "serve": ["--recipe", str(private), "--ledger", str(tmp_path / "db"), "--budget", "8"],
    }.get(path, [*source, "--text", "text", *out])

    def run(*more: str) -> tuple[int, str]:
        command = [sys.executable, "-c", WITHOUT_HEAVY, *path.split(), *arguments, *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    code, errors = run()
    assert code == 75 and errors.count("\n") == 1, errors
    assert errors.startswith(f"capelet: {path}: ")
    # For machines nothing is said, and help is no work. A server has people before it alone.
    assert path == "serve" or run("--json") == (75, "")
    assert f"capelet: {path}: " not in run("--help")[1]


def test_quick_commands_and_callers_of_the_app_get_no_first_line(data: Path) -> None:
    assert set(LONG) < set(COMMANDS)
    done = subprocess.run(
        [Path(sys.executable).parent / "capelet", "cache", "where"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert call("check", data)[2] == ""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_sign_that_the_terminal_lacks_is_escaped_and_no_fault(
    encoding: str, tmp_path: Path
) -> None:
    name = "ε größe 😀"
    lines = [f"text,{name}", *(f"hello number {row},{row % 2}" for row in range(60))]
    (tmp_path / "in.csv").write_text("\n".join(lines), "utf-8")

    def run(*more: str) -> str:
        command = [Path(sys.executable).parent / "capelet", "check", tmp_path / "in.csv", *more]
        # As in a locale of that encoding, and whatever the tester's own is.
        own = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, capture_output=True, check=True, env=own)
        return done.stdout.decode(encoding)

    shown = name.encode(encoding, "backslashreplace").decode(encoding)
    assert f"--private '{shown}'" in run()
    # For machines nothing may be lost, and what they parse is JSON.
    assert [column["name"] for column in json.loads(run("--json"))["columns"]] == ["text", name]


def test_the_tilde_of_nobody_is_no_fault(data: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "o")
    for command in (
        ("encode", data, tmp_path / "o", "--text", "text", "--recipe", "~no-such-user/r.toml"),
        ("verify", "--recipe", "~no-such-user/r.toml"),
        ("audit", data, "--text", "text", "--private", "open", "--encoder", "~no-such-user", *out),
        ("audit", data, "--text", "text", "--private", "open", "--recipe", "~no-such-user", *out),
    ):
        code, _, error = call(*command)
        assert code == 2 and "'~no-such-user" in error and "fault" not in error, error


def test_help_lists_the_commands_in_the_order_of_the_table() -> None:
    help_text = call("--help")[1]
    tops = list(dict.fromkeys(name.split()[0] for name in COMMANDS))
    places = [help_text.index(f"│ {name} ") for name in tops]
    assert places == sorted(places) and tops[:3] == ["check", "audit", "protect"]


def recipe(tmp_path: Path, *steps: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text("\n".join(f"[[steps]]\n{step}" for step in steps))
    return path


WORDLLAMA, LAPLACE = 'step = "encoder"\nname = "wordllama"', 'step = "laplace"\nepsilon = 8.0'


def test_encode_releases_a_file_and_charges_its_subjects(data: Path, tmp_path: Path) -> None:
    out, book = tmp_path / "out.parquet", tmp_path / "book.ledger"
    private = recipe(tmp_path, WORDLLAMA, LAPLACE)
    base = ("encode", data, out, "--text", "text", "--recipe", private, "--subject", "open")
    code, _, complained = call(*base, "--ledger", book, "--budget", "100")
    assert code == 2 and "too small for 2 people" in complained and not out.exists()
    assert "yes" not in complained  # 240 texts at ε = 8 each
    code, said, _ = call(*base, "--ledger", book, "--budget", "10000")
    assert code == 0 and "240 vectors of 256 dimensions: 8-local" in said
    release = Release.load(out)
    assert release.vectors.shape == (240, 256) and release.guarantee.epsilon == 8.0
    table = pa.parquet.read_table(out)
    assert table["open"].to_pylist() == pa.parquet.read_table(data)["open"].to_pylist()
    assert "text" not in table.column_names
    code, _, complained = call("encode", data, out, "--text", "stars", "--recipe", private)
    assert code == 2 and "--overwrite" in complained


def test_verify_lets_truth_stand_and_refutes_a_specimen(tmp_path: Path) -> None:
    # ε = 8 is beyond what 20,000 samples can show, so no draw can refute it.
    code, said, _ = call("verify", "--recipe", recipe(tmp_path, LAPLACE), "--samples", "20000")
    assert code == 0 and said.startswith("[stands] The claim ε = 8 stands")
    broken = recipe(tmp_path, 'step = "specimen:half-noise"\nepsilon = 1.0')
    code, _, complained = call("verify", "--recipe", broken)
    assert code == 2 and "known to be broken" in complained
    code, said, _ = call(
        "verify", "--recipe", broken, "--specimens", "--samples", "60000", "--json"
    )
    assert code == 1 and json.loads(said)[0]["passed"] is False
    code, _, complained = call("verify", "--recipe", recipe(tmp_path, WORDLLAMA))
    assert code == 2 and "no noise step" in complained


def test_verify_inspects_a_released_file(tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    PrivateEncoder(Laplace(1.0)).release(np.eye(4)).save(file)
    code, said, _ = call("verify", file)
    assert code == 0 and said.startswith("[stands] out.parquet (1-local")
    assert "not a proof" in said and len(said.splitlines()) == 1
    pa.parquet.write_table(pa.parquet.read_table(file).replace_schema_metadata(None), file)
    code, said, _ = call("verify", file, "--json")
    assert code == 1 and json.loads(said)[0]["disclosures"][0]["check"] == "guarantee"
    code, said, _ = call("verify", file)
    assert said.splitlines()[0] == "[refuted] out.parquet tells more than its guarantee covers."
    assert said.splitlines()[1].startswith("  fault (guarantee): its guarantee is missing or cut")
    assert "release it again with `capelet encode`" in said
    code, _, complained = call("verify", tmp_path / "none.parquet")
    assert code == 2 and "is not there" in complained and "--recipe" in complained


def test_verify_judges_the_whole_road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from capelet.judge import pipeline

    private = recipe(tmp_path, LAPLACE)
    monkeypatch.setattr(pipeline, "PLAN", pipeline.PLAN[:1])
    code, said, _ = call("verify", "--recipe", private, "--pipeline")
    assert code == 0 and said.startswith("[stands] The road laplace tells nothing")
    for arguments, message in (
        ([], "neither was given"),
        (["--recipe", private, tmp_path / "out.parquet"], "both were given"),
        ([tmp_path / "out.parquet", "--samples", "100"], "--samples: only noise steps"),
        (["--recipe", private, "--pipeline", "--confidence", "0.9"], "--confidence: only noise"),
        ([tmp_path / "out.parquet", "--pipeline"], "give --recipe"),
    ):
        code, _, complained = call("verify", *arguments)
        assert code == 2 and message in complained
    (tmp_path / "stray").mkdir()
    stray = recipe(tmp_path / "stray", 'step = "map"\nfile = "map.safetensors"', LAPLACE)
    code, _, complained = call("verify", "--recipe", stray, "--pipeline")
    assert code == 2 and "no manifest" in complained and "give the whole folder" in complained


def test_auxiliary_data_teach_one_more_attacker(data: Path, tmp_path: Path) -> None:
    table = pa.parquet.read_table(data)
    texts = [f"{text} elsewhere" for text in table["text"].to_pylist()]
    other, renamed = tmp_path / "other.parquet", tmp_path / "renamed.parquet"
    pa.parquet.write_table(pa.table({"text": texts, "open": table["open"]}), other)
    base = ("audit", data, "--text", "text", "--private", "open,shuffled", *QUICK)
    code, said, _ = call(*base, "--out", tmp_path / "run", "--auxiliary", other)
    assert code == 0 and "[strong leak] open:" in said
    rows = Findings.load(tmp_path / "run").select(attacker="auxiliary", metric="balanced_accuracy")
    assert [row.target for row in rows] == ["open"] and rows[0].value > 0.8
    assert rows[0].parameters["auxiliary"] == {"name": "other.parquet", "texts": 240}
    # Other class names are refused before anything is written, and are not quoted.
    names = [{"yes": "soccer", "no": "dance"}[name] for name in table["open"].to_pylist()]
    pa.parquet.write_table(pa.table({"text": texts, "open": names}), renamed)
    code, _, error = call(*base, "--out", tmp_path / "no", "--auxiliary", renamed)
    assert code == 2 and "0 of them by the same name" in error and "soccer" not in error
    assert not (tmp_path / "no" / "findings.json").exists()
