"""What a measurement of a cell begins from: its corpus, its encoder, the steps of its release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from capelet.data.corpus import Corpus
from capelet.data.datasets import path
from capelet.data.splits import group_rows
from capelet.encoders.weights import file_hash
from capelet.errors import DataError
from capelet.findings import Finding, Findings
from capelet.interfaces import Encoder, Step, Vectors
from capelet.studies.cell import Cell, Measurement
from capelet.studies.sources import encoder_of, sample

if TYPE_CHECKING:
    from capelet.privacy.guarantees import Guarantee

# Inputs that the driver adds: what names of encoders and of tasks stand for on this day.
FINGERPRINT, START_FINGERPRINT = "fingerprint", "start_fingerprint"


def named_inputs(inputs: Mapping[str, Any], digests: Mapping[str, str]) -> dict[str, Any]:
    """What the names in these inputs stand for: corpora and tasks by content, encoders by weights.

    By content, not by name: a file that changed is another corpus.
    """
    from capelet.training.device import on_processor

    tasks = {_task_key(name): file_hash(path(name)) for name in inputs.get("tasks", ())}
    # Where there is a GPU, a transformer would have another back-end here than in its cells.
    with on_processor():
        marks = {
            mark: encoder_of(str(inputs[key])).fingerprint
            for key, mark in (("encoder", FINGERPRINT), ("start", START_FINGERPRINT))
            if key in inputs
        }
    return {"digests": {**digests, **tasks}, **marks}


def _task_key(name: str) -> str:
    return f"task {name}"


def check_task(cell: Cell, name: str) -> None:
    """Refuse a sentence task that is another here than in the plan."""
    if file_hash(path(name)) != cell.inputs["digests"][_task_key(name)]:
        raise DataError(
            f"the sentence task {name!r} here is not the one of the plan (its content differs); "
            "give every machine the same files"
        )


def start_table(cell: Cell) -> tuple[list[str], Vectors] | None:
    """The words and vectors that a table of words begins from, if the plan names any."""
    if "start" not in cell.inputs:
        return None
    encoder: Any = encoder_of(cell.inputs["start"], cell.inputs[START_FINGERPRINT])
    table: tuple[list[str], Vectors] = getattr(encoder, "inner", encoder).token_table()
    return table


def corpus_of(cell: Cell, name: str = "corpus") -> Corpus:
    digest = cell.inputs["digests"][name]
    corpus = sample(cell.sources[name], cell.inputs.get("rows"), digest)
    most = cell.inputs.get("per_author")
    return corpus if most is None else _with_few_texts(corpus, int(most))


def _with_few_texts(corpus: Corpus, most: int) -> Corpus:
    """At most so many texts of each person, the same for every seed: no part of a split."""
    groups = group_rows(corpus)
    order = np.random.default_rng([0x58, most]).permutation(len(groups))
    # Stable: of each person the rows stay in random order, and the first so many are taken.
    order = order[np.argsort(groups[order], kind="stable")]
    place = np.arange(len(order)) - np.searchsorted(groups[order], groups[order])
    return corpus.take(np.sort(order[place < most]))


def encoder_in(cell: Cell) -> Encoder:
    return encoder_of(cell.inputs["encoder"], cell.inputs[FINGERPRINT])


def steps_from(entries: Iterable[Mapping[str, Any]]) -> list[Step]:
    """The steps that these entries of a plan name, written as in a recipe."""
    from capelet.release.steps import steps_of

    steps = [dict(entry) for entry in entries]
    return steps_of({"steps": steps}) if steps else []


def steps_in(cell: Cell) -> list[Step]:
    return steps_from(cell.inputs.get("steps", ()))


def check_steps(inputs: Mapping[str, Any]) -> None:
    steps_from(inputs.get("steps") or ())


def private_encoder(cell: Cell) -> Any:
    from capelet.release import PrivateEncoder
    from capelet.release.seeded import seeded

    return seeded(PrivateEncoder(encoder_in(cell), *steps_in(cell)), cell.seed)


def study_findings(
    rows: Sequence[Finding],
    seed: int,
    recipe: Mapping[str, Any] | None = None,
    unseeded_guarantee: Guarantee | None = None,
) -> Findings:
    """The rows with their seed, and a provenance without times or names that chance gave.

    A learnt map has a random id in its recipe. In a study nothing is released, and equal cells must
    be equal files, so the id is left out. `unseeded_guarantee` is what the noise would promise in
    a release, with its status: that a specimen's is broken must be in the findings, wherever they
    are shown.
    """
    from capelet.evaluation.provenance import versions
    from capelet.release.recipe import recipe_hash

    steps = [
        {key: value for key, value in step.items() if key != "id"}
        for step in (recipe or {}).get("steps", [])
    ]
    same = {"steps": steps} if steps else {}
    name = recipe_hash(same) if steps else None
    own = tuple(replace(row, recipe_hash=name, seed=seed) for row in rows)
    promise = (
        {"unseeded_guarantee": unseeded_guarantee.to_json()}
        if unseeded_guarantee is not None
        else {}
    )
    return Findings(own, {"versions": versions(), **promise}, same)


def measurement_of(
    rows: Sequence[Finding], cell: Cell, recipe: Mapping[str, Any] | None = None
) -> Measurement:
    """The findings of an attack that makes its releases itself; it gives no guesses by row."""
    return Measurement(study_findings(rows, cell.seed, recipe))
