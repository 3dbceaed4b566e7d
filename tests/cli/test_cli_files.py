"""What commands do to files that are there: nothing foreign is lost, nothing goes through links."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from capelet.cli import app, main
from capelet.cli.terminal import echo
from capelet.findings import Finding, Findings
from capelet.mechanisms import Laplace
from capelet.release import PrivateEncoder
from terminal import CliRunner

RECIPE = '[[steps]]\nstep = "laplace"\nepsilon = 8.0\n'


def call(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(item) for item in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout + done.stderr


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    rows = random.normal(size=(240, 6)).astype(np.float32)
    columns = {
        "vector": rows.tolist(),
        "group": ["a" if row[0] > 0 else "b" for row in rows],
        "task": ["c" if row[1] > 0 else "d" for row in rows],
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path / "rows.parquet"


def audit(vectors: Path, out: Path) -> tuple[int, str]:
    options = ["--vectors", "vector", "--private", "group", "--seeds", 1, "--attackers", "logistic"]
    return call("audit", vectors, *options, "--out", out)


def run_folder(folder: Path) -> Path:
    finding = Finding("utility", "task", "accuracy", 0.5)
    return Findings((finding,), artefacts={"curve": {"x": [1]}}).save(folder)


# ---- what would be lost --------------------------------------------------------------------------


def test_protect_does_not_write_over_a_private_encoder(vectors: Path, tmp_path: Path) -> None:
    folder = PrivateEncoder(Laplace(epsilon=2)).save(tmp_path / "private")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    options = ["--vectors", "vector", "--private", "group", "--label", "task", "--method", "ldp"]
    quick = ["--epsilon", 8, "--seeds", 1, "--attackers", "logistic", "--allow-useless-epsilon"]
    code, output = call("protect", vectors, *options, *quick, "--out", folder)
    assert code == 2 and "holds a trained model already" in output
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    # The control: what a killed run left, without its manifest, is no model.
    (folder / "manifest.json").unlink()
    assert call("protect", vectors, *options, *quick, "--out", folder)[0] == 0
    assert PrivateEncoder.load(folder).guarantee.epsilon == 8


def test_encode_does_not_write_onto_what_it_reads(vectors: Path, tmp_path: Path) -> None:
    before = vectors.read_bytes()
    link = tmp_path / "link.parquet"
    link.symlink_to(vectors)
    options = ["--vectors", "vector", "--recipe", tmp_path / "recipe.toml", "--overwrite"]
    for target in (vectors, link):
        code, output = call("encode", vectors, target, *options)
        assert code == 2 and "is read by this very command" in output
    assert vectors.read_bytes() == before
    assert call("encode", vectors, tmp_path / "out.parquet", *options)[0] == 0


def test_report_deletes_nothing_foreign(tmp_path: Path) -> None:
    run, other = run_folder(tmp_path / "run"), tmp_path / "other"
    (other / "artefacts").mkdir(parents=True)
    (other / "artefacts" / "mine.json").write_text("{}")
    (other / "notes.txt").write_text("mine")
    assert call("report", run, "--out", other)[0] == 0
    assert (other / "artefacts" / "mine.json").exists() and (other / "notes.txt").exists()
    assert set(Findings.load(other).artefacts) == {"curve"}
    # The control: what an earlier run lists as its own goes.
    Findings(()).save(other)
    assert [path.name for path in (other / "artefacts").iterdir()] == ["mine.json"]


# ---- links ---------------------------------------------------------------------------------------


def test_nothing_is_written_through_planted_links(vectors: Path, tmp_path: Path) -> None:
    run, elsewhere = run_folder(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("as it was")
    out = tmp_path / "out"
    out.mkdir()
    for name in ("findings.json", "report.html", "report.md"):
        (out / name).symlink_to(elsewhere / "precious")
    assert call("report", run, "--out", out)[0] == 0
    assert not (out / "report.html").is_symlink()
    (out / "artefacts" / "curve.json").unlink()
    (out / "artefacts").rmdir()
    (out / "artefacts").symlink_to(elsewhere)
    code, output = call("report", run, "--out", out)
    assert code == 2 and "is a link" in output
    (tmp_path / ".target.parquet.parts").symlink_to(elsewhere)
    options = ["--vectors", "vector", "--recipe", tmp_path / "recipe.toml"]
    code, output = call("encode", vectors, tmp_path / "target.parquet", *options)
    assert code == 2 and "is a link" in output
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]
    assert (elsewhere / "precious").read_text() == "as it was"


def test_the_umask_is_honoured(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        run = run_folder(tmp_path / "run")
        assert call("report", run)[0] == 0
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o077 for path in run.rglob("*") if path.is_file()}
    assert modes == {0}


# ---- a killed run, an interrupted one ------------------------------------------------------------


def test_a_rerun_finishes_what_was_killed_while_it_cleared_away(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.parquet"
    command = ["encode", vectors, target, "--vectors", "vector"]
    command += ["--recipe", tmp_path / "recipe.toml"]
    # As after a kill between the removal of the parts and that of their database.
    monkeypatch.setattr("capelet.release.partial_output.shutil.rmtree", lambda *_, **__: None)
    assert call(*command)[0] == 0
    monkeypatch.undo()
    content = target.read_bytes()
    assert [path.name for path in (tmp_path / ".out.parquet.parts").iterdir()] == ["run.db"]
    assert call(*command)[0] == 0
    assert target.read_bytes() == content and not (tmp_path / ".out.parquet.parts").exists()
    # A part without the database that says whose it is.
    target.unlink()
    (tmp_path / ".out.parquet.parts").mkdir()
    (tmp_path / ".out.parquet.parts" / "00000000.parquet").write_bytes(b"of nobody")
    assert call(*command)[0] == 0 and not (tmp_path / ".out.parquet.parts").exists()


def test_an_interrupt_in_the_first_moment_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupt:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "capelet.cli.commands":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "capelet.cli.commands")
    monkeypatch.setattr(sys, "meta_path", [Interrupt(), *sys.meta_path])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130 and capsys.readouterr().err == "capelet: stopped\n"


def test_names_cannot_paint_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    echo("a\x1b[31m \x9b2J\u202eb\tc\n\x00d é")
    assert capsys.readouterr().out == "a[31m 2Jb\tc\nd é\n"


@pytest.mark.parametrize("value", ["129", "99999999999999999999"])
def test_sizes_that_nobody_can_build_are_refused(value: str, tmp_path: Path) -> None:
    code, output = call("lm", "train", "x.csv", "--layers", value, "--out", tmp_path / "model")
    assert code == 2 and "128" in output


# ---- a full disk ---------------------------------------------------------------------------------


def test_a_full_disk_is_one_sentence(
    vectors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = run_folder(tmp_path / "run"), tmp_path / "out"
    before = sorted(path.name for path in tmp_path.rglob("*"))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("capelet.files.os.fsync", full)
    quick = ["--vectors", "vector", "--private", "group", "--seeds", 1, "--attackers", "logistic"]
    method = ["--label", "task", "--method", "ldp", "--epsilon", 8, "--allow-useless-epsilon"]
    commands = [
        ["report", run, "--out", out],
        ["encode", vectors, out / "o.parquet", "--vectors", "vector", "--recipe"],
        ["audit", vectors, *quick, "--out", out],
        ["protect", vectors, *quick, *method, "--out", out],
    ]
    commands[1].append(tmp_path / "recipe.toml")
    out.mkdir()
    for command in commands:
        code, output = call(*command)
        assert code == 2 and "No space left on device" in output, (command, output)
        assert output.count("\n") == 1
        files = [path for path in out.rglob("*") if path.is_file() and ".parts" not in str(path)]
        assert files == []
    monkeypatch.undo()
    assert set(before) <= {path.name for path in tmp_path.rglob("*")}
    assert audit(vectors, out)[0] == 0
    assert call(*commands[1])[0] == 0
    assert not list(out.rglob(".*"))


def test_findings_that_were_tampered_with_are_one_sentence(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    path = run / "findings.json"
    whole = json.loads(path.read_text())
    for change in (
        {"findings": [{**whole["findings"][0], "value": "zq"}]},
        {"findings": {"zq": 1}},
        {"provenance": ["zq"]},
        {"provenance": {"attributes": {"zq": 7}, "warnings": 3, "seeds": "zq", "split": [1]}},
        {"artefacts": ["../../zq"]},
        {"schema": "zq"},
    ):
        path.write_text(json.dumps({**whole, **change}))
        code, output = call("report", run, "--out", tmp_path / "page")
        assert code == 2 and "zq" not in output and "not" in output, output
        assert not (tmp_path / "page").exists()
    path.write_text(json.dumps(whole))
    assert call("report", run, "--out", tmp_path / "page")[0] == 0
