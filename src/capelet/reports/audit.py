"""The page of one run: what its vectors give away, and what they are worth.

The same builder serves an audit, an inversion alone and a membership alone: a section appears for
each kind that was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from capelet.findings import Findings
from capelet.reports import facts, method
from capelet.reports.draw.maps import Cloud
from capelet.reports.formatting import count
from capelet.reports.kinds import all_verdicts, reports_of, summary
from capelet.reports.kinds.attribute_inference import (
    learning_curves,
    needs,
    unmeasured_attributes,
)
from capelet.reports.kinds.generic import OTHERS
from capelet.reports.kinds.inversion import GROUP, shows_texts
from capelet.reports.output_summary import what_leaves
from capelet.reports.page import (
    Block,
    Callout,
    Card,
    Cards,
    Facts,
    Maps,
    Page,
    Passage,
    Passages,
    Section,
    Table,
    present,
    section,
    sign_off,
    tables,
    text,
)

# The headings of the tables in the order of the page; a kind may bring one of its own.
GROUPS = (
    "Leakage and its controls",
    "Every attacker, per attribute",
    "The task",
    GROUP,
    OTHERS,
    "Learning curves",
)


def audit_page(findings: Findings) -> Page:
    """Verdicts first, then what the attacker needed, every kind, tables, method and provenance."""
    name = facts.name_of(findings)
    kinds = [report.section(findings) for report in reports_of(findings)]
    # The map of original and released vectors follows the map of the vectors.
    before = [item for item in kinds if item is None or item.anchor != "shift"]
    after = [item for item in kinds if item is not None and item.anchor == "shift"]
    sections = [
        _verdicts(findings),
        _attacker(findings),
        *before,
        _map(findings),
        _clouds(findings),
        *after,
        section("tables", "Tables", _tables(findings), "Tables"),
        *ending(method.method(findings), method.limits(findings)),
        section("provenance", "Provenance", facts.origin(findings), "Provenance"),
        sign_off(),
    ]
    return Page(
        title=f"{name}: privacy report by Capelet",
        heading=("What the vectors of ", name, " give away"),
        lead=summary(findings),
        header=(Facts(facts.headline(findings)), *callout(facts.warnings(findings))),
        sections=present(sections),
        private=shows_texts(findings),
        leaves=what_leaves(findings),
    )


def callout(items: Iterable[str], title: str = "Read this first") -> list[Callout]:
    """What must be read before the rest; nothing where there is nothing."""
    warnings = tuple(items)
    return [Callout(title, warnings)] if warnings else []


def ending(methods: Iterable[Passage], limits: Iterable[Passage]) -> list[Section]:
    """How it was measured, and what that cannot say."""
    return [
        Section("method", "Method", (Passages(tuple(methods)),), "Method and limits"),
        Section("limits", "Limits", (Passages(tuple(limits)),)),
    ]


def _tables(findings: Findings) -> list[Block | None]:
    """All numbers, under headings, and what was done to the columns."""
    groups: dict[str, list[Table | None]] = {name: [] for name in GROUPS}
    for report in reports_of(findings):
        # A kind's own heading comes after those of the page, in the order of the kinds.
        for title, item in report.tables(findings):
            groups.setdefault(title, []).append(item)
    groups["Classes"] = [facts.classes(findings)]
    blocks = [tables(title, items) for title, items in groups.items()]
    return [*blocks, text(facts.class_notes(findings), "list note")]


def _verdicts(findings: Findings) -> Section:
    verdicts = all_verdicts(findings)
    names = unmeasured_attributes(findings)
    missing = f"Asked for, but not measured: {', '.join(names)}." if names else ""
    cards = [Card(item, (f"against {item.chance_words}", item.base)) for item in verdicts]
    nothing = text(["Nothing was attacked in this run."])
    blocks = [Cards(tuple(cards)) if cards else nothing, text([missing], "note")]
    return Section("verdicts", "Verdicts", present(blocks), "Verdicts")


def _attacker(findings: Findings) -> Section | None:
    blocks = [
        Passages(tuple(method.access(findings))),
        text(needs(findings), "list"),
        learning_curves(findings),
    ]
    return section("attacker", "What the attacker needed", blocks, "Attacker")


def _clouds(findings: Findings) -> Section | None:
    """Several releases of the same victims in one map."""
    content = facts.artefact(findings, "tsne_clouds")
    names = content.get("clouds") or []
    cloud = Cloud.read("release", content.get("points") or [], names, "Releases of the same texts")
    caption = (
        "Vectors of similar direction lie near each other. A cloud apart has lost its directions; "
        "a cloud among the original ones is no leak by itself."
    )
    block = _maps(content, "victims", [cloud], "t-SNE of all of them.", caption)
    return section("clouds", "Several releases in one map", [block], "Releases")


def _map(findings: Findings) -> Section | None:
    content = facts.artefact(findings, "tsne")
    colours = content.get("colours") or {}
    candidates = [
        Cloud.read(name, content.get("points") or [], classes or [])
        for name, classes in colours.items()
    ]
    caption = (
        "Texts that lie near each other have similar vectors. Colours that part are a leak that "
        "one can see; colours that mix do not prove that there is none."
    )
    block = _maps(content, "vectors", candidates, "t-SNE, coloured by attribute.", caption)
    return section("map", "The vectors as a map", [block], "Map")


def _maps(
    content: Mapping[str, Any], what: str, clouds: list[Cloud | None], title: str, caption: str
) -> Maps | None:
    """The clouds that can be drawn, under a caption that says how many points they show."""
    items = tuple(cloud for cloud in clouds if cloud is not None)
    size, total = content.get("shown"), content.get("of")
    shares = f"{count(size)} of {count(total)} {what}. " if size and total else ""
    return Maps(items, title, shares + caption) if items else None
