"""Several attacked language models side by side: one table for what each remembers and costs.

The findings of each run are those that `capelet lm attack` wrote; here they only get the name of
their model, and nothing is measured. Exposure depends on the canaries and on the texts, so models
of other texts than the first's are compared with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from capelet.errors import DataError
from capelet.evaluation.provenance import provenance
from capelet.findings import Finding, Findings


def compare_models(runs: Sequence[tuple[str, Findings]]) -> Findings:
    """The rows of all runs, each with the name of its model in `parameters.method`.

    A model is called by its method where no other run has the same, else by the run's own name.
    """
    if len(runs) < 2:
        raise DataError(f"a comparison needs two runs or more; found {len(runs)}")
    for name, findings in runs:
        if not any(row.kind == "extraction" or row.metric == "perplexity" for row in findings):
            raise DataError(
                f"{name!r} holds no findings on a language model; give folders that "
                "`capelet lm attack` wrote"
            )
    names = _names(runs)
    rows: list[Finding] = []
    for name, (_, findings) in zip(names, runs, strict=True):
        rows += [
            replace(row, parameters={**row.parameters, "method": name}) for row in findings.rows
        ]
    every = [findings.provenance for _, findings in runs]
    promises = {
        name: str(_part(about, "guarantee").get("sentence") or "")
        for name, about in zip(names, every, strict=True)
    }
    origin = provenance(
        _part(every[0], "data"),
        guarantees={name: sentence for name, sentence in promises.items() if sentence},
        warnings=_warnings(names, every),
    )
    recipe = {"runs": {name: dict(run.recipe) for name, (_, run) in zip(names, runs, strict=True)}}
    return Findings(tuple(rows), origin, recipe, {})


def _names(runs: Sequence[tuple[str, Findings]]) -> list[str]:
    """One name for each run: its method, or its own name where several have that method."""
    methods = [_part(findings.recipe, "method").get("name") for _, findings in runs]
    names = [
        str(method) if method and methods.count(method) == 1 else own
        for method, (own, _) in zip(methods, runs, strict=True)
    ]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"two runs are called {twice!r} and have the same method; give folders of other names"
        )
    return names


def _warnings(names: Sequence[str], every: Sequence[Mapping[str, Any]]) -> list[str]:
    """What makes runs hard to compare: other texts, or another number of canaries."""
    first = every[0]
    warnings = []
    for name, about in zip(names[1:], every[1:], strict=True):
        if _part(about, "data") != _part(first, "data"):
            warnings.append(f"{name} was trained on other texts than {names[0]}")
        if about.get("canaries") != first.get("canaries"):
            warnings.append(f"{name} holds another number of canaries than {names[0]}")
    return warnings


def _part(about: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = about.get(name)
    return value if isinstance(value, Mapping) else {}
