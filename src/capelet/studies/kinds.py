"""The kinds of a study: what may vary in each, and the pure function that measures one cell of it.

To add a kind: a function from a cell to its measurement (in `measurements`), a record with its keys
and its version, and a line in `KINDS`. The version is raised by hand whenever the function would
give other numbers for the same inputs: stored cells of the old version are then not found, and
measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from capelet.encoders import DEFAULT
from capelet.errors import CapeletError
from capelet.question import Protocol, names_of
from capelet.studies.cell import Cell, Measurement
from capelet.studies.documents import check_keys
from capelet.studies.measurements.attributes import (
    check_attackers,
    check_clouds,
    check_method,
    measure_audit,
    measure_geometry,
    measure_protect,
    setting_keys,
)
from capelet.studies.measurements.duals import DUAL_KEYS, check_dual, measure_dual
from capelet.studies.measurements.inputs import check_steps
from capelet.studies.measurements.inversion import check_inversion, measure_inversion
from capelet.studies.measurements.language import (
    LANGUAGE_KEYS,
    check_language,
    measure_language,
)
from capelet.studies.measurements.members import MEMBERSHIP_KEYS, check_model, measure_membership
from capelet.studies.measurements.writers import measure_authorship

_CORPUS: dict[str, Any] = {"corpus": None, "rows": None, "seed": 0}
# At most so many texts of each person: `rows` takes whole people, and leaves few of them.
_PEOPLE: dict[str, Any] = {"per_author": None}
_RELEASE: dict[str, Any] = {"encoder": DEFAULT, "steps": ()}
# A cell has one seed, and what is drawn in it repeats.
_ATTRIBUTES: dict[str, Any] = {
    **{
        name: None
        for name in names_of(Protocol)
        if name not in ("seeds", "seeded_noise", "threads")
    },
    "split": "balanced",
}


@dataclass(frozen=True)
class Kind:
    """One kind of study: its keys with their defaults, and how a cell of it is measured.

    `check` refuses what no corpus could make right; it runs before anything is read.
    """

    title: str
    version: int
    keys: Mapping[str, Any]
    measure: Callable[[Cell], Measurement]
    check: Callable[[Mapping[str, Any]], None] = field(default=lambda inputs: None)

    def complete(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """All inputs with defaults for what was not given; what is None is left out of the key."""
        check_keys(values, self.keys, f"a study of the kind {name!r}")
        inputs = {**self.keys, **values}
        if inputs.get("corpus") is None:
            raise CapeletError('a plan needs a corpus: under [axes], corpus = ["reviews"]')
        self.check(inputs)
        return {key: value for key, value in inputs.items() if value not in (None, (), [], {})}


KINDS: dict[str, Kind] = {
    "protect": Kind(
        "a method trained on one split, attacked afresh",
        2,
        {
            **_CORPUS,
            "encoder": DEFAULT,
            **_ATTRIBUTES,
            "method": None,
            **setting_keys(),
            "hold_out": (),
            "members": None,
        },
        measure_protect,
        check_method,
    ),
    "geometry": Kind(
        "several releases of the same texts, beside each other",
        1,
        {
            **_CORPUS,
            "encoder": DEFAULT,
            "split": "balanced",
            "derive": (),
            "bins": None,
            "clouds": {},
        },
        measure_geometry,
        check_clouds,
    ),
    "audit": Kind(
        "a release with given steps, attacked on one split",
        2,
        {**_CORPUS, **_RELEASE, **_ATTRIBUTES},
        measure_audit,
        check_attackers,
    ),
    "invert": Kind(
        "the words of texts, read back from vectors",
        1,
        {
            **_CORPUS,
            **_RELEASE,
            "auxiliary": None,
            "attacks": ("multi-label",),
            "sentences": False,
            "most": None,
            "draws": 1,
            "layer": None,
            "overlap": None,
            "victims": None,
            "options": None,
        },
        measure_inversion,
        check_inversion,
    ),
    "authorship": Kind(
        "who of many wrote a text",
        1,
        {**_CORPUS, **_RELEASE, "shots": 10, "writers": 100, "baseline": None},
        measure_authorship,
        check_steps,
    ),
    "membership": Kind(
        "which texts a model was trained on",
        1,
        {**_CORPUS, **_PEOPLE, **MEMBERSHIP_KEYS},
        measure_membership,
        check_model,
    ),
    "dual": Kind(
        "dual encoders that hide words and writers",
        2,
        {**_CORPUS, **_PEOPLE, **DUAL_KEYS},
        measure_dual,
        check_dual,
    ),
    "language": Kind(
        "language models, and canaries read out of them",
        1,
        {**_CORPUS, **_PEOPLE, **LANGUAGE_KEYS},
        measure_language,
        check_language,
    ),
}
