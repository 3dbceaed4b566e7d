"""A null is as sure as its score: one rule, over persons and all seeds; below chance is no leak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.evaluation.leakage import Tally, findings_of
from capelet.evaluation.plan import Plan
from capelet.findings.metrics import Guesses
from capelet.privacy.guarantees import NONE
from capelet.release import Release
from capelet.reports import verdicts
from capelet.workflows.audit import audit

AUTHORS = np.repeat(np.arange(30), 20)


def planted(authors: np.ndarray | None) -> Plan:
    rows = np.arange(600)
    corpus = Corpus(
        "planted",
        vectors=np.stack([rows, -rows], axis=1).astype(np.float32),
        private={"side": np.array(["a", "b"] * 300, dtype=object)},
        author=None if authors is None else authors.astype(str).astype(object),
    )
    return Plan.of(corpus, seeds=3)


def tally_of(plan: Plan) -> Tally:
    """Guesses that are right or wrong author by author, the same for the attack and its null."""
    tally = Tally()
    right = np.random.default_rng(0).random(30) < 0.6
    for parts in plan.splits:
        truth = plan.secrets[0].codes[parts.victims]
        hit = right[AUTHORS[parts.victims]]
        scores = np.eye(2)[np.where(hit, truth, 1 - truth)]
        for kind in ("attribute-inference", "attribute-inference-null"):
            guesses = Guesses(truth, scores, plan.units[parts.victims])
            tally.guesses[kind, "side", "strongest"].append(guesses)
    return tally


@pytest.mark.parametrize("known", [True, False])
def test_the_null_has_the_interval_that_the_same_score_would_have(known: bool) -> None:
    plan = planted(AUTHORS if known else None)
    release = Release(np.zeros((600, 2)), NONE, {})
    rows = {
        row.kind: row
        for row in findings_of(plan, release, tally_of(plan))
        if row.metric == "balanced_accuracy"
    }
    score, null = rows["attribute-inference"], rows["attribute-inference-null"]
    assert (score.value, score.low, score.high) == (null.value, null.low, null.high)


def test_both_are_less_sure_where_authors_are_known() -> None:
    release = Release(np.zeros((600, 2)), NONE, {})
    widths = []
    for authors in (AUTHORS, None):
        plan = planted(authors)
        for row in findings_of(plan, release, tally_of(plan)):
            if row.metric == "balanced_accuracy" and row.low is not None and row.high is not None:
                widths.append(row.high - row.low)
    by_author, null_by_author, by_row, null_by_row = widths
    assert by_author == null_by_author > 1.5 * by_row and by_row == null_by_row


def test_few_authors_put_the_null_below_chance_and_that_is_no_leak(
    dataset: Callable[[str], Corpus],
) -> None:
    """900 posts of 28 people: shuffled labels are drawn without replacement, hence below chance."""
    full = dataset("politices")
    assert full.author is not None and full.texts is not None
    random = np.random.default_rng(3)
    people = random.permutation(np.unique(full.author))[:28]
    rows = np.flatnonzero(np.isin(full.author, people))
    rows = np.sort(random.permutation(rows)[:900])
    corpus = replace(
        full,
        texts=full.texts[rows],
        label=None,
        private={"gender": full.private["gender"][rows]},
        author=full.author[rows],
    )
    findings = audit(corpus, "wordllama", attackers=["logistic", "knn"])
    (null,) = findings.select(kind="attribute-inference-null", metric="balanced_accuracy")
    assert null.high is not None and null.value < 0.47 and null.high < 0.5
    (verdict,) = verdicts(findings)
    assert not verdict.warnings
