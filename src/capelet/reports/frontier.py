"""The search of a protection: what was asked for, what was chosen, and every setting."""

from __future__ import annotations

from capelet.findings import Findings
from capelet.reports.draw.pareto import Frontier, both_values
from capelet.reports.formatting import percent, points
from capelet.reports.page import Line, Search, Section, Table, section, text


def search_section(findings: Findings) -> Section | None:
    """The frontier among the artefacts, drawn and in words; None where nothing was searched."""
    frontier = Frontier.read(findings)
    if frontier is None:
        return None
    picture = Search(
        frontier,
        "Each point is a setting that was tried.",
        "To the left less leaks, upwards more is kept. The ringed point was chosen; the steps join "
        "the points that no other beats in both.",
    )
    blocks = [text(search_sentences(frontier)), picture, search_table(frontier)]
    return section("frontier", "Leakage against utility", blocks, "Leakage against utility")


def search_sentences(frontier: Frontier) -> list[str]:
    """What was asked for, what was chosen, and how near it came where nothing is good enough."""
    leakage, utility = (
        # They come from the findings and stand inside a sentence here.
        words.strip().rstrip(".") or "score"
        for words in (frontier.leakage, frontier.utility)
    )
    answers = [
        f"{len(frontier.points)} settings were tried. Leakage is the {leakage}; utility is the "
        f"{utility}. Both are measured inside the defender’s part, so that the choice has seen no "
        "victim."
    ]
    choice = frontier.choice
    if frontier.demand is not None:
        answers.append(_answer(frontier, *frontier.demand))
    elif choice is not None:
        answers.append(f"The chosen setting ({choice.settings}): {both_values(choice)}.")
    return answers


def _answer(frontier: Frontier, kind: str, limit: float) -> str:
    leak = kind == "max_leakage"
    demand = f"a leakage of at most {points(limit, 1)}" if leak else ""
    demand = demand or f"a utility of at least {percent(limit, 1)}"
    choice = frontier.choice
    # Among all points, not only the chosen one: the reader learns how hard the demand was.
    matches = [p for p in frontier.points if (p.bound <= limit if leak else p.utility >= limit)]
    if matches and choice is not None:
        number = (
            "One of the settings reaches" if len(matches) == 1 else f"{len(matches)} settings reach"
        )
        return (
            f"Asked for: {demand}. {number} it; chosen was {choice.settings}: "
            f"{both_values(choice)}."
        )
    by_leak, by_use = (lambda p: p.bound), (lambda p: -p.utility)
    # Nearest to the demand alone, whatever it costs on the other side.
    nearest = min(frontier.points, key=by_leak if leak else by_use)
    gap = abs((nearest.bound if leak else nearest.utility) - limit)
    subject = "No setting" if not matches else "No chosen setting"
    return (
        f"Asked for: {demand}. {subject} reaches it. The nearest ({nearest.settings}) misses it by "
        f"{points(gap, 1)}: {both_values(nearest)}."
    )


def search_table(frontier: Frontier) -> Table:
    """All points, the least leaking first."""
    rows: list[tuple[str, float | None, float | None, str]] = [
        (f"{point.settings} (chosen)", point.leakage, point.utility, "strong")
        if point.choice
        else (point.settings, point.leakage, point.utility, "")
        for point in sorted(frontier.points, key=lambda point: (point.leakage, -point.utility))
    ]
    if frontier.baseline is not None:
        rows.append(("unprotected", *frontier.baseline, "control"))
    if frontier.ceiling is not None or frontier.utility_ceiling is not None:
        # What anyone can reach, on the attribute that permits most and on the task.
        most = frontier.ceiling, frontier.utility_ceiling
        rows.append(("ceiling of ε, from one text", *most, "control"))
    note = f"Leakage: {frontier.leakage}. Utility: {frontier.utility}."
    lines = (
        Line((name, points(leakage, 1), percent(utility, 1)), role)
        for name, leakage, utility, role in rows
    )
    columns = ("setting", "leakage", "utility")
    return Table("Every setting that was tried", columns, tuple(lines), note)
