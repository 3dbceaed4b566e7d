"""The report on a language model: what it remembers, and what that costs whom.

A pure function of findings: one self-contained page with the exposure curves and the tables. It
shows one model, or several methods side by side (`parameters.method`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from capelet.files import write_whole
from capelet.findings import Finding, Findings
from capelet.reports.svg import svg, text
from capelet.reports.tables import Line, Table
from capelet.reports.words import NOTHING, known

METHODS = {
    "none": "no privacy",
    "adversarial": "adversarial",
    "triplet": "triplet",
    "dpsgd": "DP-SGD",
    "dpsgd-loose": "clipping with next to no noise",
}
REMEMBERED = 10.0
"""From so many bits on, a sentence calls a secret remembered: one in a thousand ranks higher."""


@dataclass(frozen=True)
class Series:
    """One method's mean exposure for each number of repetitions."""

    name: str
    levels: tuple[int, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]


def is_of_language(findings: Findings) -> bool:
    """Whether these are findings on a language model, which have a report of their own."""
    return any(row.metric == "perplexity" or row.kind == "extraction" for row in findings)


def write_language_report(findings: Findings, folder: Path | str) -> Path:
    """Write `findings.json`, `report.html` and `report.md`; the page's path."""
    target = findings.save(folder)
    write_whole(target / "report.md", render_language_markdown(findings))
    page = target / "report.html"
    write_whole(page, render_language(findings))
    return page


def render_language(findings: Findings) -> str:
    """The page as one HTML file."""
    from capelet.reports.render import templates

    drawn = series(findings)
    return (
        templates()
        .get_template("language.html")
        .render(
            sentences=sentences_of(findings),
            picture=exposure_curves(drawn, _chance(findings)) if drawn else None,
            keys=[
                (str(place % 7 + 1), METHODS.get(s.name, s.name)) for place, s in enumerate(drawn)
            ],
            tables=tables_of(findings),
            facts=_facts(findings),
            command=findings.provenance.get("command"),
        )
    )


def render_language_markdown(findings: Findings) -> str:
    """The same as Markdown: sentences and tables."""
    parts = ["# What the language model remembers", ""]
    parts += [f"- {sentence}" for sentence in sentences_of(findings)]
    for table in tables_of(findings):
        parts += [
            "",
            f"## {table.title}",
            "",
            _row(table.columns),
            _row(["---"] * len(table.columns)),
        ]
        parts += [_row(line.cells) for line in table.lines]
        if table.note:
            parts += ["", table.note]
    return "\n".join([*parts, ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# ---- sentences -----------------------------------------------------------------------------------


def sentences_of(findings: Findings) -> list[str]:
    """What was found, one plain sentence each; the guarantee first."""
    said = []
    promise = (findings.provenance.get("guarantee") or {}).get("sentence")
    if promise:
        none = promise.startswith("no guarantee")
        said.append(f"{promise[0].upper()}{promise[1:]}." if none else f"Promised: {promise}.")
    for method in methods_of(findings):
        said += _canary_sentences(findings, method)
    for row in findings.select(kind="extraction", target="real texts", metric="accuracy"):
        said.append(
            f"Given its first word, the model gives back the whole of {percent(row.value)} of the "
            f"{row.n} least usual training texts, one of each author."
        )
    for row in findings.select(kind="membership", metric="auc"):
        name = "its loss" if row.attacker == "loss" else "its loss against a reference model"
        sure = row.low is not None and row.low > 0.5
        said.append(
            f"Whether a text was trained on is told by {name} with an AUC of {row.value:.2f} "
            f"({_span(row, 2)}; chance 0.5)" + ("." if sure else ": no better than chance.")
        )
    for row in findings.select(kind="utility", metric="perplexity"):
        if row.parameters.get("method") is None:
            said.append(f"Test perplexity: {row.value:.1f}.")
    return said


def _canary_sentences(findings: Findings, method: str | None) -> list[str]:
    rows = [
        row
        for row in findings.select(kind="extraction", target="canaries", metric="exposure_bits")
        if row.parameters.get("method") == method
    ]
    if not rows:
        return []
    most = max(rows, key=lambda row: row.parameters["repetitions"])
    often = most.parameters["repetitions"]
    figures = f"{most.value:.1f} bits ({_span(most, 1)}; never inserted: {most.chance:.1f})"
    if method is None:
        verdict = "is remembered" if most.value >= REMEMBERED else "is hardly remembered"
        seen = f"A made-up secret that one author repeated {often} times"
        return [f"{seen} {verdict}: exposure {figures}."]
    name = METHODS.get(method, method)
    costs = [
        f"test perplexity {row.value:.1f}, "
        for row in findings.select(kind="utility", metric="perplexity")
        if row.parameters.get("method") == method
    ]
    return [
        f"{name[0].upper()}{name[1:]}: {''.join(costs)}exposure of a secret repeated {often} times "
        f"{figures}."
    ]


def methods_of(findings: Findings) -> list[str | None]:
    rows = findings.select(target="canaries", metric="exposure_bits")
    return list(dict.fromkeys(row.parameters.get("method") for row in rows))


# ---- tables --------------------------------------------------------------------------------------


def tables_of(findings: Findings) -> list[Table]:
    found = [_canary_table(findings, "exposure_bits"), _canary_table(findings, "accuracy")]
    found += [_other_table(findings), _utility_table(findings)]
    return [table for table in found if table is not None]


def _canary_table(findings: Findings, metric: str) -> Table | None:
    rows = findings.select(target="canaries", metric=metric)
    if not rows:
        return None
    levels = sorted({row.parameters["repetitions"] for row in rows})
    methods = methods_of(findings)
    cell = _bits if metric == "exposure_bits" else _share
    lines = []
    for level in levels:
        mine = {
            row.parameters.get("method"): row
            for row in rows
            if row.parameters["repetitions"] == level
        }
        name = "never (control)" if level == 0 else str(level)
        cells = [cell(mine[method]) if method in mine else NOTHING for method in methods]
        lines.append(Line((name, *cells), "control" if level == 0 else ""))
    names = [METHODS.get(method, method) if method else "this model" for method in methods]
    if metric == "exposure_bits":
        title = "Exposure of canaries, bits"
        note = (
            "Means with 95 % intervals over authors. Chance is 1.4 bits. Where no random sequence "
            "ranks above a canary, its exposure is extrapolated from a fitted tail."
        )
    else:
        title = "Tab attack on canaries: share given back whole"
        note = "The first word goes in; a hit needs all other words, in order."
    return Table(title, ("repetitions", *names), tuple(lines), note)


def _other_table(findings: Findings) -> Table | None:
    rows = [
        row for row in findings if row.kind.startswith("membership") or row.target == "real texts"
    ]
    lines = [
        Line(
            (
                row.kind.replace("-null", ", dealt anew (control)"),
                row.attacker or NOTHING,
                row.metric.replace("_", " "),
                f"{row.value:.3f} ({_span(row, 3)})",
                NOTHING if row.chance is None else f"{row.chance:g}",
            ),
            "control" if row.kind.endswith("-null") else "",
        )
        for row in rows
    ]
    columns = ("attack", "attacker", "measure", "value", "chance")
    return Table("Other attacks", columns, tuple(lines), words=3) if lines else None


def _utility_table(findings: Findings) -> Table | None:
    rows = [row for row in findings if row.metric in ("perplexity", "perplexity_ratio")]
    times = findings.artefacts.get("training_time")
    ratio = times if isinstance(times, Mapping) else {}
    lines = []
    for row in rows:
        method = row.parameters.get("method")
        what = (row.subgroup or "all authors").replace("author size=", "authors with most texts: ")
        what = what.replace("most texts: smallest", "fewest texts").replace(": largest", "")
        name = "times the baseline's" if row.metric == "perplexity_ratio" else "perplexity"
        time = ratio.get(method) if row.subgroup is None else None
        matched = row.parameters.get("matched")
        lines.append(
            Line(
                (
                    METHODS.get(method, method) if method else "this model",
                    what,
                    name,
                    f"{row.value:.2f}" + (f" ({_span(row, 2)})" if known(row.low) else ""),
                    NOTHING if matched is None else ("yes" if matched else "no"),
                    NOTHING if time is None else f"{time:.2f} ×",
                )
            )
        )
    columns = ("method", "for whom", "measure", "value", "matched", "time per step")
    return Table("What it costs", columns, tuple(lines), words=3) if lines else None


def _bits(row: Finding) -> str:
    more = row.parameters.get("extrapolated")
    return f"{row.value:.1f} ({_span(row, 1)})" + (f", {more} extrapolated" if more else "")


def _share(row: Finding) -> str:
    return f"{100 * row.value:.0f} % ({_span(row, 0, 100)})"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _span(row: Finding, digits: int, scale: float = 1.0) -> str:
    if row.low is None or row.high is None:
        return NOTHING
    return f"{scale * row.low:.{digits}f}–{scale * row.high:.{digits}f}"


def _facts(findings: Findings) -> list[tuple[str, str]]:
    data: Mapping[str, Any] = findings.provenance.get("data") or {}
    recipe = findings.recipe
    facts = [(name, f"{value:,}") for name, value in data.items() if isinstance(value, int)]
    method = (recipe.get("method") or {}).get("name")
    if method:
        facts.insert(0, ("method", METHODS.get(method, method)))
    if recipe.get("network"):
        facts.append(("network", str(recipe["network"])))
    made = findings.provenance.get("created")
    return [*facts, ("measured", str(made))] if made else facts


# ---- the picture ---------------------------------------------------------------------------------


def series(findings: Findings) -> list[Series]:
    """The exposure of inserted canaries as one series per method, without early stops."""
    found = []
    for method in methods_of(findings):
        if method is not None and "stopped" in method:
            continue
        rows = sorted(
            (
                row
                for row in findings.select(
                    kind="extraction", target="canaries", metric="exposure_bits"
                )
                if row.parameters.get("method") == method
            ),
            key=lambda row: row.parameters["repetitions"],
        )
        if rows:
            found.append(
                Series(
                    method or "this model",
                    tuple(row.parameters["repetitions"] for row in rows),
                    tuple(row.value for row in rows),
                    tuple(row.value if row.low is None else row.low for row in rows),
                    tuple(row.value if row.high is None else row.high for row in rows),
                )
            )
    return found


def _chance(findings: Findings) -> float:
    rows = findings.select(target="canaries", metric="exposure_bits")
    return next((row.chance for row in rows if row.chance is not None), 0.0)


def exposure_curves(drawn: Sequence[Series], chance: float) -> Markup:
    """Bits of exposure over repetitions (log scale), 640 by 320, a line per method."""
    import math

    levels = sorted({level for item in drawn for level in item.levels})
    top = max(10.0, *(value for item in drawn for value in item.highs)) * 1.05
    wide = math.log(max(levels[-1], levels[0] + 1) / levels[0])

    def across(level: float) -> float:
        return 60 + 560 * math.log(level / levels[0]) / wide

    def down(bits: float) -> float:
        return 270 - 250 * bits / top

    parts = []
    step = next(size for size in (2, 5, 10, 20, 50) if top / size <= 7)
    for tick in range(0, int(top) + 1, step):
        y = down(tick)
        parts.append(
            f'<line class="grid" x1="60" x2="620" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="tick" x="52" y="{y + 4:.1f}" text-anchor="end">{tick}</text>'
        )
    last = -100.0
    for level in levels:
        if across(level) - last >= 24:
            last = across(level)
            parts.append(
                f'<text class="tick" x="{last:.1f}" y="290" text-anchor="middle">{level}</text>'
            )
    parts.append(
        '<text class="axis" x="340" y="312" text-anchor="middle">times that the author repeated '
        "the secret</text>"
        f'<line class="mark chance" x1="60" x2="620" y1="{down(chance):.1f}" '
        f'y2="{down(chance):.1f}"><title>never inserted: {chance:.1f} bits</title></line>'
    )
    for place, item in enumerate(drawn):
        aside = 2.5 * (place - (len(drawn) - 1) / 2)  # or intervals would hide each other
        parts += _line(item, place % 7 + 1, lambda level, by=aside: across(level) + by, down)
    said = "; ".join(
        f"{METHODS.get(item.name, item.name)}: "
        + ", ".join(f"{v:.1f} at {n}" for n, v in zip(item.levels, item.values, strict=True))
        for item in drawn
    )
    return svg("panel", 'viewBox="0 0 640 320"', "Exposure in bits", f"{said}.", parts)


def _line(item: Series, colour: int, across: Any, down: Any) -> list[str]:
    spots = " ".join(
        f"{across(n):.1f},{down(v):.1f}" for n, v in zip(item.levels, item.values, strict=True)
    )
    parts = [f'<polyline class="c-{colour}" style="fill:none;stroke-width:2" points="{spots}"/>']
    for n, v, low, high in zip(item.levels, item.values, item.lows, item.highs, strict=True):
        x = across(n)
        title = text(f"{METHODS.get(item.name, item.name)}, {n} times: {v:.1f} bits")
        parts.append(
            f'<line class="c-{colour}" style="stroke-width:1" x1="{x:.1f}" x2="{x:.1f}" '
            f'y1="{down(low):.1f}" y2="{down(high):.1f}"><title>{title} '
            f"({low:.1f}–{high:.1f})</title></line>"
        )
    return parts
