"""Where a report comes from: data, encoder, split, seeds, versions and time, as pairs of words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from capelet.findings import Findings
from capelet.reports.formatting import count, day, duration, join_names, percent
from capelet.reports.page import Block, Code, Fact, Line, Origins, Table, table

Group = tuple[str, tuple[Fact, ...]]
# Values that are read letter by letter.
_CODES = {"only rows where", "digest", "fingerprint", "recipe", "vectors kept in a cache"}
# How the training methods of language models are called.
METHODS = {
    "none": "no privacy",
    "adversarial": "adversarial",
    "triplet": "triplet",
    "dpsgd": "DP-SGD",
    "dpsgd-loose": "clipping with next to no noise",
}


def method_name(method: Any) -> str:
    """How a training method of language models is called; of a single model it is not named."""
    return METHODS.get(str(method), str(method)) if method else "this model"


def name_of(findings: Findings) -> str:
    """The name of the data, as a title."""
    default = "a language model" if findings.recipe.get("network") else "unnamed data"
    return str(part(findings, "data").get("name") or default)


def scored_units(findings: Findings) -> str:
    """Over whom scores are: people, or texts where no author is known.

    >>> scored_units(Findings((), {"data": {"rows": 90, "authors": None}}))
    'texts'
    """
    data = part(findings, "data")
    # Findings that were made by hand may say nothing of their data.
    return "texts" if data and not data.get("authors") else "people"


def headline(findings: Findings) -> tuple[Fact, ...]:
    """The few facts that identify the run at the top of the page."""
    data, encoder = part(findings, "data"), part(findings, "encoder")
    guarantee = part(findings, "guarantee").get("sentence")
    rows, authors = data.get("rows"), data.get("authors")
    size = f"{count(rows)} texts" if rows is not None else None
    size = f"{size} by {count(authors)} authors" if size and authors else size
    size = f"{size}; {_use(data, part(findings, 'split'))}" if size and _use(data, {}) else size
    time = findings.provenance.get("created")
    return known(
        {
            "Data": ", ".join(str(part) for part in (data.get("name"), size) if part),
            "Encoder": _encoder(encoder),
            "Guarantee": guarantee,
            "For each word": part(findings, "guarantee").get("words"),
            "Date": day(time) if time else None,
        }
    )


def _use(data: Mapping[str, Any], split: Mapping[str, Any]) -> str:
    """How many texts an attack used, where it cut them or drew some; and how many were attacked."""
    pieces, victims = data.get("pieces"), (split.get("sizes") or {}).get("victims")
    if pieces is None or pieces == data.get("rows"):
        return ""
    words = f"{count(pieces)} used after cutting and drawing"
    return f"{words}, {count(victims)} of them attacked" if victims else words


def model_facts(findings: Findings) -> tuple[Fact, ...]:
    """The few facts that identify a run on a language model."""
    method = findings.recipe.get("method")
    network, time = findings.recipe.get("network"), findings.provenance.get("created")
    name = method.get("name") if isinstance(method, Mapping) else None
    sizes = {key: f"{n:,}" for key, n in part(findings, "data").items() if isinstance(n, int)}
    method_name = METHODS.get(str(name), name)
    return known({"method": method_name, **sizes, "network": network, "measured": time})


def provenance(findings: Findings) -> list[Group]:
    """All facts, in groups; a group without facts is left out."""
    versions = findings.provenance.get("versions") or {}
    groups = {
        "Data": _data(part(findings, "data")),
        "Encoder": _of_encoder(findings),
        "Split": _split(part(findings, "split")),
        "Guarantee": _guarantee(part(findings, "guarantee")),
        "Run": _run(findings),
        "Versions": {"capelet": findings.provenance.get("capelet"), **versions},
    }
    return [(title, facts) for title, content in groups.items() if (facts := known(content))]


def origin(findings: Findings, groups: Iterable[Group] | None = None) -> tuple[Block, ...]:
    """Where the numbers come from, how to repeat them, and the recipe."""
    facts = tuple(provenance(findings) if groups is None else groups)
    recipe = dict(findings.recipe)
    code = json.dumps(recipe, indent=2, ensure_ascii=False, default=str) if recipe else ""
    command = str(findings.provenance.get("command") or "")
    codes = (Code("How to repeat it", command), Code("Recipe", code))
    origins = [Origins(facts)] if facts else []
    return (*origins, *(item for item in codes if item.content))


def warnings(findings: Findings) -> list[str]:
    """What the run itself warned of."""
    content = findings.provenance.get("warnings") or []
    return [content] if isinstance(content, str) else [str(item) for item in content]


def incomparable(first: Findings, second: Findings) -> list[str]:
    """Why a difference between two runs may not be what it seems."""
    reasons = []
    # A digest names the very rows: two samples of one corpus are different data.
    if part(first, "data").get("digest") != part(second, "data").get("digest"):
        reasons.append(
            "The two runs measured different data: a difference may come from the data alone."
        )
    splits = [part(run, "split") for run in (first, second)]
    if any(splits[0].get(key) != splits[1].get(key) for key in ("kind", "seeds", "shares")):
        reasons.append("The two runs split the data differently: their victims are not the same.")
    return reasons


def run_names(first: Findings, second: Findings) -> tuple[str, str]:
    """`before` and `after` for one encoder on one data set, else `first run` and `second run`."""
    # By digest and fingerprint, not by name: names can be given twice.
    keys = (("data", "digest"), ("encoder", "fingerprint"))
    pairs = [[part(run, name).get(key) for run in (first, second)] for name, key in keys]
    same = all(one is not None and one == other for one, other in pairs)
    return ("before", "after") if same else ("first run", "second run")


def _data(data: Mapping[str, Any]) -> dict[str, Any]:
    duplicates = data.get("duplicates") or {}
    near = duplicates.get("victims_near_attacker")
    return {
        "name": data.get("name"),
        "texts": _number(data.get("rows")),
        "texts after cutting and drawing": _number(data.get("pieces")),
        "members": _number(data.get("members")),
        "authors": _number(data.get("authors")),
        "only rows where": data.get("where"),
        "identical texts": _number(duplicates.get("identical")),
        "near copies": _number(duplicates.get("near")),
        "victims near an attacker’s text": None if near is None else percent(near, 1),
        "texts cut by the encoder": _number(data.get("truncated")),
        "digest": data.get("digest"),
    }


def _of_encoder(findings: Findings) -> dict[str, Any]:
    encoder = part(findings, "encoder")
    return {
        "name": encoder.get("name"),
        "back-end": encoder.get("backend"),
        "dimension": _number(encoder.get("dimension")),
        "fingerprint": encoder.get("fingerprint"),
        "recipe": ", ".join(sorted({row.recipe_hash for row in findings if row.recipe_hash})),
    }


def _split(split: Mapping[str, Any]) -> dict[str, Any]:
    shares, sizes = split.get("shares") or {}, split.get("sizes") or {}
    parts = [
        f"{name} {percent(shares[name]) if name in shares else ''}".strip()
        + (f" ({count(sizes[name])})" if name in sizes else "")
        # An inversion has sizes and no shares.
        for name in dict.fromkeys([*shares, *sizes])
    ]
    return {
        "kind": str(split.get("kind") or "").replace("_", " "),
        "parts": join_names(parts),
        "seeds": ", ".join(str(seed) for seed in split.get("seeds") or []),
    }


def _guarantee(guarantee: Mapping[str, Any]) -> dict[str, Any]:
    # An ε beside "no guarantee" would look like one.
    promise = guarantee if guarantee.get("notion", "none") != "none" else {}
    epsilon, delta = promise.get("epsilon"), promise.get("delta")
    return {
        "promise": guarantee.get("sentence"),
        "for each word": guarantee.get("words"),
        "ε": None if epsilon is None else f"{epsilon:g}",
        "δ": f"{delta:g}" if delta else None,
        "unit": promise.get("unit"),
        "status": guarantee.get("status"),
    }


def _run(findings: Findings) -> dict[str, Any]:
    time = findings.provenance.get("created")
    seconds = findings.provenance.get("seconds") or {}
    return {
        "made": day(time) if time else None,
        **{f"time, {name}": duration(value) for name, value in seconds.items()},
        "vectors kept in a cache": findings.provenance.get("cache"),
    }


def known(facts: Mapping[str, Any]) -> tuple[Fact, ...]:
    """The facts that have a value: a single attack's findings lack some."""
    present = {term: value for term, value in facts.items() if value is not None and value != ""}
    return tuple(Fact(term, str(value), term in _CODES) for term, value in present.items())


def _number(number: Any) -> str | None:
    return None if number is None else count(number)


def _encoder(encoder: Mapping[str, Any]) -> str:
    dimension = encoder.get("dimension")
    parts = (encoder.get("name"), f"{count(dimension)} dimensions" if dimension else None)
    return ", ".join(str(part) for part in parts if part)


def part(findings: Findings, name: str) -> Mapping[str, Any]:
    """A part of the provenance; empty where it is missing or of another shape."""
    # Findings may come from another version or from hand: a page must be drawn all the same.
    content = findings.provenance.get(name)
    return content if isinstance(content, Mapping) else {}


def artefact(findings: Findings, name: str) -> Mapping[str, Any]:
    """An artefact; empty where it is missing or of another shape."""
    content = findings.artefacts.get(name)
    return content if isinstance(content, Mapping) else {}


def entries(content: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """The pairs of a mapping of mappings; what is missing or of another shape is empty."""
    if not isinstance(content, Mapping):
        return []
    return [
        (str(name), item if isinstance(item, Mapping) else {}) for name, item in content.items()
    ]


def classes(findings: Findings) -> Table | None:
    """How many texts each class of each attribute and of the label has."""
    lines: list[Line] = []
    label = findings.provenance.get("label")
    for name, entry in entries(findings.provenance.get("attributes")):
        lines += _class_lines(name, entry)
    if isinstance(label, Mapping):
        lines += _class_lines(f"{label.get('name', 'label')} (task)", label)
    return table("Classes", ("column", "class", "texts", "share"), lines, words=2)


def _class_lines(name: str, entry: Mapping[str, Any]) -> list[Line]:
    sizes = dict(entry.get("classes") or {})
    missing = entry.get("missing") or 0
    total = sum(sizes.values()) + missing
    pairs = [*sizes.items(), *([("(missing)", missing)] if missing else [])]
    return [
        Line((name, str(group), count(size), percent(size / total if total else None, 1)))
        for group, size in pairs
    ]


def class_notes(findings: Findings) -> list[str]:
    """What was done to a column before it was measured, one sentence each."""
    columns = dict(entries(findings.provenance.get("attributes")))
    label = findings.provenance.get("label")
    if isinstance(label, Mapping):
        columns[str(label.get("name", "label"))] = label
    return [
        f"{name}: {note}" for name, entry in columns.items() for note in entry.get("notes") or []
    ]
