"""The report as Markdown: verdicts, tables, method and provenance, for a code host or a terminal.

User text is escaped, so that a class name can neither break a table nor smuggle in HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from capelet.findings import Findings
from capelet.reports import (
    attack_tables,
    attacks,
    comparison,
    facts,
    method,
    sections,
    shift,
    tables,
)
from capelet.reports import verdicts as judged


def render_markdown(findings: Findings, compared: Findings | None = None) -> str:
    """The Markdown of one run or, with `compared`, of two runs side by side."""
    blocks = _single(findings) if compared is None else _comparison(findings, compared)
    return "\n\n".join(block for block in blocks if block) + "\n"


def plain(content: str) -> str:
    """Text that Markdown leaves as it is, on one line.

    >>> plain("a|b <script>")
    'a\\\\|b &lt;script&gt;'
    """
    line = " ".join(content.split()).replace("&", "&amp;")
    line = re.sub(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w))", r"\\\1", line)
    return line.replace("<", "&lt;").replace(">", "&gt;")


def table(content: tables.Table) -> str:
    """The table under its title; numbers to the right."""
    rule = ["---" if i < content.words else "---:" for i in range(len(content.columns))]
    head = [_line(content.columns), "| " + " | ".join(rule) + " |"]
    body = [
        _line(line.cells, strong=line.role == "strong", slanted=line.role == "control")
        for line in content.lines
    ]
    parts = [f"**{plain(content.title)}**", "\n".join([*head, *body])]
    return "\n\n".join([*parts, plain(content.note)] if content.note else parts)


def _line(cells: Iterable[str], strong: bool = False, slanted: bool = False) -> str:
    shown = [plain(cell) for cell in cells]
    if strong or slanted:
        sign = "**" if strong else "*"
        shown[0] = f"{sign}{shown[0]}{sign}"
    return "| " + " | ".join(shown) + " |"


def _single(findings: Findings) -> list[str]:
    verdicts = attacks.all_verdicts(findings)
    return [
        f"# What the vectors of {plain(facts.name_of(findings))} give away",
        f"**{plain(attacks.whole(findings))}**",
        facts_list(facts.headline(findings)),
        quoted(facts.warnings(findings)),
        "## Verdicts" if verdicts else "",
        listed(f"**{v.title}** · {plain(v.sentence)}" for v in verdicts),
        _unmeasured(findings),
        "## What the attacker needed",
        passages(method.access(findings)),
        listed(plain(need) for need in judged.needs(findings)),
        *_utility(findings),
        *_others(findings),
        *_shift(findings),
        "## Tables",
        *_tables(findings),
        "## Method",
        passages(method.method(findings)),
        "## Limits",
        passages(method.limits(findings)),
        *_provenance(findings, "##"),
    ]


def _utility(findings: Findings) -> list[str]:
    said = [*judged.tasks(findings), *judged.gaps(findings)]
    return ["## Does the task still work?", listed(plain(item) for item in said)] if said else []


def _others(findings: Findings) -> list[str]:
    """Words, writers and training texts; examples with texts only where the run shows them."""
    blocks = []
    for section in sections.sections(findings):
        blocks += [f"## {section.heading}", listed(map(plain, section.sentences))]
        for item in section.examples:
            reads = [
                f"{plain(read['attacker'])}: {plain(' '.join(read['right']) or '–')}; wrongly "
                f"{plain(' '.join(read['wrong']) or '–')}"
                for read in item["reads"]
            ]
            blocks.append(listed([plain(item["text"]), *reads]))
        if section.numbers:
            blocks.append(table(section.numbers))
    return blocks


def _shift(findings: Findings) -> list[str]:
    found = shift.shift(findings)
    if found is None:
        return []
    said = [*found.sentences, shift.CAUTION]
    blocks = ["## Original and released vectors", listed(map(plain, said))]
    return [*blocks, table(found.table)] if found.table else blocks


def _tables(findings: Findings) -> list[str]:
    found = [
        tables.summary(findings),
        *tables.attack_tables(findings),
        *tables.task_tables(findings),
        tables.fairness(findings),
        *attack_tables.attack_tables(findings),
        *tables.others(findings),
        tables.learning_curves(findings),
        tables.classes(findings),
    ]
    shown = [table(item) for item in found if item is not None]
    return [*shown, listed(plain(note) for note in tables.class_notes(findings))]


def _comparison(before: Findings, after: Findings) -> list[str]:
    names = facts.run_names(before, after)
    blocks = [
        "# Two runs side by side",
        f"**{plain(comparison.summary(before, after))}**",
        quoted(facts.incomparable(before, after)),
        listed(plain(change.sentence) for change in comparison.changes(before, after)),
        *(table(item) for item in tables.differences(before, after, names)),
        *(table(item) for item in attacks.differences(before, after, names)),
        *(table(item) for item in (shift.compared(before, after, names),) if item is not None),
    ]
    for name, run in zip(names, (before, after), strict=True):
        blocks += [
            f"## {name.capitalize()}: {plain(facts.name_of(run))}",
            plain(attacks.whole(run)),
            quoted(facts.warnings(run)),
            listed(f"**{v.title}** · {plain(v.sentence)}" for v in attacks.all_verdicts(run)),
            *_provenance(run, "###"),
        ]
    return blocks


def _provenance(findings: Findings, level: str) -> list[str]:
    return origin(facts.provenance(findings), findings, level)


def origin(
    groups: Sequence[tuple[str, Sequence[facts.Fact]]], findings: Findings, level: str
) -> list[str]:
    """Where the numbers come from, how to repeat them, and the recipe."""
    blocks = [f"{level} Provenance"] if groups else []
    for title, entries in groups:
        blocks += [f"**{title}**", facts_list(entries)]
    command, recipe = facts.command(findings), facts.recipe(findings)
    if command:
        blocks += [f"{level} How to repeat it", _code(command)]
    if recipe:
        blocks += [f"{level} Recipe", _code(recipe)]
    return blocks


def facts_list(entries: Sequence[facts.Fact]) -> str:
    """Terms and values as a list."""
    return listed(f"{plain(fact.term)}: {plain(fact.value)}" for fact in entries)


def passages(items: Iterable[method.Passage]) -> str:
    """A list of paragraphs, each under its title."""
    return listed(f"**{plain(item.title)}.** {plain(item.text)}" for item in items)


def _unmeasured(findings: Findings) -> str:
    names = judged.unmeasured(findings)
    return f"Asked for, but not measured: {plain(', '.join(names))}." if names else ""


def quoted(warnings: Sequence[str]) -> str:
    """What must be read first."""
    return "\n>\n".join(f"> **Read this first.** {plain(item)}" for item in warnings)


def listed(items: Iterable[str]) -> str:
    """Markdown's list; the items are escaped already."""
    return "\n".join(f"- {item}" for item in items)


def _code(content: str) -> str:
    """An indented block: nothing inside can end it."""
    return "\n".join(f"    {line}" for line in content.splitlines())
