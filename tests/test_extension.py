"""A new member is one class and one line of its table; the rest of the house finds it by itself.

Each test adds a throw-away member to a literal table, patches nothing else, and looks for it in
`capelet list`, in `--help`, in a report, and among what the pages fail to describe: that last one
is the control of the docs check, which must notice a member without a description.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

import capelet
from capelet.attacks.attribute import Candidate, Secret, View
from capelet.cli import app
from capelet.cli.catalogue import TABLES
from capelet.cli.doors import Json
from capelet.data.corpus import Corpus
from capelet.defences import Schedule
from capelet.defences.uses import Use
from capelet.encoders import Entry
from capelet.errors import CapeletError
from capelet.findings.kinds import Kind
from capelet.findings.metrics import Measure, Metric
from capelet.interfaces import Progress, Vectors, silent
from capelet.mechanisms.vectors import OnVectors
from capelet.privacy.guarantees import Guarantee
from capelet.reports import write_protection
from capelet.workflows.protect import protect
from documentation import undocumented
from terminal import CliRunner

NAME = "throw-away"


def call(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(item) for item in arguments], env={"COLUMNS": "300"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def help_of(*command: str) -> str:
    """A command's help, with the lines of its panels joined."""
    return " ".join(call(*command, "--help")[1].replace("│", " ").split())


def add(monkeypatch: pytest.MonkeyPatch, kind: str, member: Any) -> str:
    """Put the member into its table, and give the line that `capelet list` then has of it.

    Before that, nobody knows it: the name must come from the table and from nowhere else.
    """
    assert NAME not in json.loads(call("list", "--json")[1])[kind]
    assert not undocumented(kind)
    monkeypatch.setitem(TABLES[kind].members, NAME, member)  # type: ignore[arg-type]
    assert undocumented(kind) == {NAME}
    return str(json.loads(call("list", "--json")[1])[kind][NAME])


@dataclass(frozen=True)
class Centroids:
    """Which class has the nearer mean vector."""

    name: str = NAME
    grid: Sequence[dict[str, Any]] = ({},)

    def fit(self, view: View, secret: Secret, settings: Any) -> Candidate:
        rows, codes = view.vectors.fit, secret.codes.fit
        means = np.stack([rows[codes == code].mean(axis=0) for code in range(secret.classes)])

        def probabilities(part: Vectors) -> npt.NDArray[np.float64]:
            nearness = np.exp(-((part[:, None] - means) ** 2).sum(axis=2) / 2)
            return np.asarray(nearness / nearness.sum(axis=1, keepdims=True))

        tune, scored = probabilities(view.vectors.tune), probabilities(view.vectors.scored)
        return Candidate(settings, tune, scored)


def test_an_attacker_family(
    monkeypatch: pytest.MonkeyPatch, planted: Corpus, tmp_path: Path
) -> None:
    assert add(monkeypatch, "attackers", Centroids()) == "Which class has the nearer mean vector."
    assert f"kernel, {NAME}; all by default" in help_of("audit")
    findings = capelet.audit(planted, seeds=1, attackers=[NAME])
    (row,) = findings.select(
        kind="attribute-inference", attacker=NAME, target="open", metric="balanced_accuracy"
    )
    assert row.value is not None and row.value > 0.7  # the planted leak
    assert NAME in capelet.write_report(findings, tmp_path).read_text("utf-8")


@dataclass(frozen=True)
class Uniform(OnVectors):
    """ε-local privacy because nothing of the vector is left."""

    step: ClassVar[str] = NAME
    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon)

    def __call__(self, batch: Any) -> Vectors:
        return np.random.default_rng().uniform(-1, 1, size=np.shape(batch)).astype(np.float32)


def test_a_mechanism(monkeypatch: pytest.MonkeyPatch, planted: Corpus, tmp_path: Path) -> None:
    line = add(monkeypatch, "mechanisms", Uniform)
    assert line == "ε-local privacy because nothing of the vector is left."
    assert f"or {NAME}." in help_of("verify") and NAME in help_of("encode")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'[[steps]]\nstep = "{NAME}"\nepsilon = 0.5\n')
    code, printed, _ = call("verify", "--recipe", recipe, "--samples", 20_000)
    assert code == 0 and "stands" in printed
    private = capelet.PrivateEncoder.from_recipe(recipe)
    findings = capelet.audit(planted, private, seeds=1, attackers=["logistic"])
    page = capelet.write_report(findings, tmp_path / "run").read_text("utf-8")
    assert NAME in page and "0.5-local differential privacy" in page


def test_a_defence(monkeypatch: pytest.MonkeyPatch, planted: Corpus, tmp_path: Path) -> None:
    preset = replace(TABLES["defences"].members["gr"], summary="Reversal by another name.")
    assert add(monkeypatch, "defences", preset) == "Reversal by another name."
    assert f"or {NAME}." in help_of("protect")
    settings = capelet.Settings(schedule=Schedule(epochs=3))
    result = protect(planted, None, NAME, settings, seeds=1, attackers=["logistic"])
    assert NAME in write_protection(result.before, result.after, tmp_path).read_text("utf-8")


def test_a_use(monkeypatch: pytest.MonkeyPatch) -> None:
    use = Use("Vectors to look at.", "leace", "neighbours", "it is near at hand")
    assert add(monkeypatch, "uses", use) == "Vectors to look at."
    assert f"or {NAME}." in help_of("protect")
    assert capelet.propose(NAME).reason == "it is near at hand"


class Lengths:
    """How long a text is, in two ways."""

    name, backend, dimension, fingerprint = NAME, "numpy", 2, "0" * 64

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Vectors:
        return np.array([[len(text), text.count(" ")] for text in texts], dtype=np.float32)

    def truncated(self, texts: Sequence[str]) -> npt.NDArray[np.bool_]:
        return np.zeros(len(texts), dtype=bool)


def test_an_encoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = Entry("lengths of texts, 2 dimensions", lambda name, backend: Lengths())
    assert add(monkeypatch, "encoders", entry) == "lengths of texts, 2 dimensions"
    assert f"{NAME}, a folder or a Hugging Face id" in help_of("audit")
    rows = [f"{'word ' * (1 + row % 2 * 5)}{row},{row % 2}" for row in range(90)]
    (tmp_path / "data.csv").write_text("\n".join(["text,secret", *rows]))
    columns = ("--text", "text", "--private", "secret", "--encoder", NAME, "--no-cache")
    quick = ("--seeds", 1, "--attackers", "logistic", "--out", tmp_path / "run")
    code, printed, _ = call("audit", tmp_path / "data.csv", *columns, *quick)
    assert code == 0 and "[strong leak] secret:" in printed
    assert NAME in (tmp_path / "run/report.html").read_text("utf-8")


def shout(word: Annotated[str, "What to say."], /, *, json: Json = False) -> None:
    """Say it louder.

    Example: `capelet throw-away hello`
    """
    if not word:
        raise CapeletError("there is nothing to say; give a word")
    print(json if json else word.upper())


def test_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert add(monkeypatch, "commands", shout) == "Say it louder."
    assert f"{NAME} Say it louder." in help_of()
    assert "Example: capelet throw-away hello" in help_of(NAME)
    assert call(NAME, "hello") == (0, "HELLO\n", "")
    assert call(NAME, "") == (2, "", "capelet: there is nothing to say; give a word\n")


# ---------------------------------------------------------------------------------------------
# Metrics and kinds of finding


def test_a_metric(monkeypatch: pytest.MonkeyPatch, planted: Corpus, tmp_path: Path) -> None:
    def share_of_right_guesses(guesses: Any, weights: Any) -> Any:
        right = (guesses.truth == guesses.predictions).astype(float)
        return weights @ right / weights.sum(axis=1)

    record = Metric(
        NAME,
        Measure("guessed right"),
        share_of_right_guesses,
        chance=lambda classes: 1 / classes,
        majority=lambda share, classes: share,
    )
    assert add(monkeypatch, "metrics", record)
    assert NAME in help_of("report")
    findings = capelet.audit(planted, seeds=1, attackers=["logistic"])
    which = {"kind": "attribute-inference", "target": "open", "attacker": "strongest"}
    right = findings.value(**which, metric="accuracy")
    assert findings.value(**which, metric=NAME) == pytest.approx(right)
    assert "guessed right" in capelet.write_report(findings, tmp_path).read_text("utf-8")


def test_a_kind_of_finding(
    monkeypatch: pytest.MonkeyPatch, planted: Corpus, tmp_path: Path
) -> None:
    record = Kind(NAME, "Echoes of texts", "accuracy", "leak", "a text told from its echo")
    assert add(monkeypatch, "kinds of finding", record) == "a text told from its echo"
    assert NAME in help_of("report")
    findings = capelet.audit(planted, seeds=1, attackers=["logistic"])
    some = findings.select(kind="attribute-inference", metric="accuracy")[0]
    echo = replace(some, kind=NAME, target="echo")
    page = capelet.write_report(replace(findings, rows=(*findings.rows, echo)), tmp_path)
    assert "Echoes of texts" in page.read_text("utf-8")
