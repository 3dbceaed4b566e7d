"""One question is decided once, whoever asks it: through Python and at a terminal alike."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from capelet.cli import app
from capelet.data import splits
from capelet.data.corpus import Corpus
from capelet.errors import CapeletError, DataError
from capelet.evaluation import decision, plan
from capelet.evaluation.decision import decide
from capelet.evaluation.plan import Plan
from capelet.question import Attacks, Protocol
from capelet.release import PrivateEncoder
from capelet.workflows.audit import audit
from terminal import CliRunner

COUNTED = [
    (Plan, "of"), (decision, "choose_attacks"), (decision, "rows_that_trained"),
    (plan, "group_rows"), (splits, "group_rows"), (decision, "check_metrics"),
]  # fmt: skip


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each part of a decision is taken."""
    counts: Counter[str] = Counter()

    def counted(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        return call

    for owner, name in COUNTED:
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    return counts


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ready vectors of 30 authors, of whom two are of the rare class."""
    random = np.random.default_rng(0)
    author = random.integers(0, 30, 600)
    frame = pd.DataFrame({
        "vector": list(random.normal(size=(600, 4))),
        "who": [f"w{name}" for name in author],
        "rare": np.where(author < 2, "yes", "no"),
        "side": random.choice(["left", "right"], 600),
    })  # fmt: skip
    path = tmp_path_factory.mktemp("few") / "few.parquet"
    frame.to_parquet(path)
    return path


COLUMNS: dict[str, Any] = {"vectors": "vector", "private": ["rare"], "author": "who"}


def from_terminal(path: Path, out: Path, *options: str) -> tuple[int, str]:
    columns = ["--vectors", "vector", "--private", "rare", "--author", "who"]
    arguments = ["audit", str(path), *columns, "--attackers", "logistic", "--out", str(out)]
    done = CliRunner().invoke(app, [*arguments, *options])
    return done.exit_code, done.stderr


def test_an_audit_is_decided_once_through_either_door(
    few: Path, tmp_path: Path, calls: Counter[str]
) -> None:
    audit(few, attackers="logistic", seeds=5, **COLUMNS)
    once = dict.fromkeys((name for _, name in COUNTED), 1)
    assert calls == once
    calls.clear()
    code, _ = from_terminal(few, tmp_path / "run", "--seeds", "5")
    assert code == 0 and calls == once


@pytest.mark.parametrize("seeds", [1, 5])
def test_few_authors_are_measured_or_refused_alike(few: Path, tmp_path: Path, seeds: int) -> None:
    """A terminal planned with one seed, and refused what five seeds can measure."""
    refusal = None
    try:
        audit(few, attackers="logistic", seeds=seeds, **COLUMNS)
    except DataError as error:
        refusal = error.spell("terminal")
    code, printed = from_terminal(few, tmp_path / "run", "--seeds", str(seeds))
    assert (code == 2) is (refusal is not None) is (seeds == 1)
    assert refusal is None or refusal in printed


def test_nothing_is_encoded_before_all_is_decided(planted: Corpus) -> None:
    class Unread:
        name = "unread"
        backend = "none"
        fingerprint = "none"
        dimension = 3

        def encode(self, texts: Any, progress: Any = None) -> Any:
            raise AssertionError("weights were read")

        def truncated(self, texts: Any) -> Any:
            return self.encode(texts)

    texts = np.array([f"text {row}" for row in range(len(planted))], dtype=object)
    corpus = replace(planted, texts=texts, vectors=None)
    private = PrivateEncoder(Unread())
    plan = decide(Protocol(seeds=[3]), Attacks(["all"]), corpus, private)
    assert plan.attacks.kinds == ("attributes", "inversion") and len(plan.attacks.left_out) == 2
    assert [item.seed for item in plan.splits] == [3] and plan.seeds == (3,)
    for protocol, asked, sentence in (
        (Protocol(attackers=["logstic"]), Attacks(), "did you mean 'logistic'"),
        (Protocol(metrics=["acuracy"]), Attacks(), "acuracy"),
        (Protocol(split="randm"), Attacks(), "did you mean 'random'"),
        (Protocol(), Attacks(["atributes"]), "did you mean 'attributes'"),
        (Protocol(), Attacks(["inversion"], auxiliary=planted), "ask for those too"),
        (Protocol(), Attacks(compare_map={"original": private}), "give it another name"),
        (Protocol(), Attacks(compare_map={"other": PrivateEncoder()}), "consumes vectors"),
    ):
        with pytest.raises(CapeletError, match=sentence):
            decide(protocol, asked, corpus, private)
