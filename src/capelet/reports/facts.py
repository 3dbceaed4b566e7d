"""Where a report comes from: data, encoder, split, seeds, versions and time, as pairs of words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from capelet.findings import Findings
from capelet.reports.words import count, day, duration, listed, percent


@dataclass(frozen=True)
class Fact:
    """A term and its value; `code` asks for letters of equal width."""

    term: str
    value: str
    code: bool = False


def name_of(findings: Findings) -> str:
    """The name of the data, as a title."""
    return str(_part(findings, "data").get("name") or "unnamed data")


def headline(findings: Findings) -> list[Fact]:
    """The few facts that identify the run at the top of the page."""
    data, encoder = _part(findings, "data"), _part(findings, "encoder")
    guarantee = _part(findings, "guarantee").get("sentence")
    rows, authors = data.get("rows"), data.get("authors")
    said = f"{count(rows)} texts" if rows is not None else None
    said = f"{said} by {count(authors)} authors" if said and authors else said
    created = findings.provenance.get("created")
    pairs = (
        ("Data", ", ".join(str(part) for part in (data.get("name"), said) if part)),
        ("Encoder", _encoder(encoder)),
        ("Guarantee", guarantee),
        ("For each word", _part(findings, "guarantee").get("words")),
        ("Date", day(created) if created else None),
    )
    return [Fact(term, str(value)) for term, value in pairs if value]


def provenance(findings: Findings) -> list[tuple[str, list[Fact]]]:
    """All facts, in groups; a group without facts is left out."""
    groups = [
        ("Data", _data(_part(findings, "data"))),
        ("Encoder", _of_encoder(findings)),
        ("Split", _split(_part(findings, "split"))),
        ("Guarantee", _guarantee(_part(findings, "guarantee"))),
        ("Run", _run(findings)),
        ("Versions", _versions(findings)),
    ]
    return [(title, facts) for title, facts in groups if facts]


def warnings(findings: Findings) -> list[str]:
    """What the run itself warned of."""
    said = findings.provenance.get("warnings") or []
    return [said] if isinstance(said, str) else [str(item) for item in said]


def command(findings: Findings) -> str:
    return str(findings.provenance.get("command") or "")


def recipe(findings: Findings) -> str:
    """The recipe that was measured, as indented JSON; empty where there is none."""
    if not findings.recipe:
        return ""
    return json.dumps(dict(findings.recipe), indent=2, ensure_ascii=False, default=str)


def incomparable(first: Findings, second: Findings) -> list[str]:
    """Why a difference between two runs may not be what it seems."""
    reasons = []
    if _part(first, "data").get("digest") != _part(second, "data").get("digest"):
        reasons.append(
            "The two runs measured different data: a difference may come from the data alone."
        )
    splits = [_part(run, "split") for run in (first, second)]
    if any(splits[0].get(key) != splits[1].get(key) for key in ("kind", "seeds", "shares")):
        reasons.append("The two runs split the data differently: their victims are not the same.")
    return reasons


def run_names(first: Findings, second: Findings) -> tuple[str, str]:
    """`before` and `after` for one encoder on one data set, else `first run` and `second run`."""
    keys = (("data", "digest"), ("encoder", "fingerprint"))
    pairs = [tuple(_part(run, part).get(key) for run in (first, second)) for part, key in keys]
    same = all(one is not None and one == other for one, other in pairs)
    return ("before", "after") if same else ("first run", "second run")


def _data(data: Mapping[str, Any]) -> list[Fact]:
    duplicates = data.get("duplicates") or {}
    near = duplicates.get("victims_near_attacker")
    return _facts(
        ("name", data.get("name"), False),
        ("texts", _counted(data.get("rows")), False),
        ("texts after cutting and drawing", _counted(data.get("pieces")), False),
        ("members", _counted(data.get("members")), False),
        ("authors", _counted(data.get("authors")), False),
        ("only rows where", data.get("where"), True),
        ("identical texts", _counted(duplicates.get("identical")), False),
        ("near copies", _counted(duplicates.get("near")), False),
        ("victims near an attacker’s text", None if near is None else percent(near, 1), False),
        ("texts cut by the encoder", _counted(data.get("truncated")), False),
        ("SHA-256", data.get("digest"), True),
    )


def _of_encoder(findings: Findings) -> list[Fact]:
    encoder = _part(findings, "encoder")
    hashes = sorted({row.recipe_hash for row in findings if row.recipe_hash})
    return _facts(
        ("name", encoder.get("name"), False),
        ("back-end", encoder.get("backend"), False),
        ("dimension", _counted(encoder.get("dimension")), False),
        ("fingerprint", encoder.get("fingerprint"), True),
        ("recipe", ", ".join(hashes) or None, True),
    )


def _split(split: Mapping[str, Any]) -> list[Fact]:
    shares, sizes = split.get("shares") or {}, split.get("sizes") or {}
    parts = [
        f"{name} {percent(shares[name]) if name in shares else ''}".strip()
        + (f" ({count(sizes[name])})" if name in sizes else "")
        for name in dict.fromkeys([*shares, *sizes])
    ]
    seeds = split.get("seeds") or []
    return _facts(
        ("kind", str(split["kind"]).replace("_", " ") if split.get("kind") else None, False),
        ("parts", listed(parts) or None, False),
        ("seeds", ", ".join(str(seed) for seed in seeds) or None, False),
    )


def _guarantee(guarantee: Mapping[str, Any]) -> list[Fact]:
    epsilon = guarantee.get("epsilon")
    promised = guarantee.get("notion", "none") != "none"
    return _facts(
        ("promise", guarantee.get("sentence"), False),
        ("for each word", guarantee.get("words"), False),
        ("ε", f"{epsilon:g}" if promised and epsilon is not None else None, False),
        ("δ", f"{guarantee['delta']:g}" if promised and guarantee.get("delta") else None, False),
        ("unit", guarantee.get("unit") if promised else None, False),
        ("status", guarantee.get("status"), False),
    )


def _run(findings: Findings) -> list[Fact]:
    created = findings.provenance.get("created")
    seconds = findings.provenance.get("seconds") or {}
    times = [(f"time, {name}", duration(value), False) for name, value in seconds.items()]
    return _facts(
        ("made", day(created) if created else None, False),
        *times,
        ("vectors kept in a cache", findings.provenance.get("cache"), True),
    )


def _versions(findings: Findings) -> list[Fact]:
    versions = dict(findings.provenance.get("versions") or {})
    pairs = {"capelet": findings.provenance.get("capelet"), **versions}
    return _facts(*((name, value, False) for name, value in pairs.items()))


def _facts(*entries: tuple[str, Any, bool]) -> list[Fact]:
    return [Fact(term, str(value), code) for term, value, code in _present(entries)]


def _present(entries: Iterable[tuple[str, Any, bool]]) -> Iterable[tuple[str, Any, bool]]:
    return (entry for entry in entries if entry[1] is not None and entry[1] != "")


def _counted(number: Any) -> str | None:
    return None if number is None else count(number)


def _encoder(encoder: Mapping[str, Any]) -> str:
    dimension = encoder.get("dimension")
    parts = (encoder.get("name"), f"{count(dimension)} dimensions" if dimension else None)
    return ", ".join(str(part) for part in parts if part)


def _part(findings: Findings, name: str) -> Mapping[str, Any]:
    part = findings.provenance.get(name)
    return part if isinstance(part, Mapping) else {}
