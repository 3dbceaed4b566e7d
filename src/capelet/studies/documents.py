"""What a committed file of results may hold: a list of fields, and nothing beside them.

The list is one of what is allowed, not of what is forbidden: whoever adds a column with the guess
of each victim, by intent or by slip, is refused because nobody named it here. Names of levels are
short words, so that no text and no list of people fits into them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SCHEMA = 1
VERDICTS = ("holds", "fails", "cannot be tested here")
HOLDS, FAILS, UNTESTED = VERDICTS
_OF_MANY = {HOLDS: "hold", FAILS: "fail", UNTESTED: UNTESTED}
# The "paper" of plans that ask a question of our own.
BENCH = "bench"
# Sentences of our own; a text of a corpus would have to be short to pass, and has no field.
LONGEST_WORD, LONGEST_SENTENCE = 120, 2000
# So many splits nobody runs: they would be rows about people under the name of splits.
MOST_SEEDS = 1000
# Axes that would make a row one about a person, and those that may only say how many there are.
PERSONAL = {
    "author", "guess", "guesses", "id", "person", "pseudonym", "row", "subject", "text", "truth",
    "user", "victim",
}  # fmt: skip
# The unit of a guarantee is one of these; any other word could be somebody's name.
UNITS = {"record", "text", "author", "–"}
COUNTS = {"authors", "people", "rows", "subjects", "texts", "units", "users", "victims"}

Check = Callable[[Any], bool]


def check_results(document: Any) -> None:
    """A ValueError that names the first field which may not be there, or is not as it should be.

    >>> check_results({"schema": 1, "guesses": [0, 1]})
    Traceback (most recent call last):
    ValueError: the file has a field 'guesses' that results do not hold; ...
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"it has not the schema {SCHEMA}")
    _check(document, _DOCUMENT, _OPTIONAL, "the file")
    seeds = set(document["origin"]["seeds"])
    for place, row in enumerate(document["rows"]):
        if row["seed"] not in seeds:
            raise ValueError(f"row {place} is of a split that the file's seeds do not name")


def _check(item: Any, fields: Mapping[str, Check], optional: set[str], where: str) -> None:
    if not isinstance(item, dict):
        raise ValueError(f"{where} is no object")
    for name in item:
        if name not in fields:
            raise ValueError(
                f"{where} has a field {str(name)[:40]!r} that results do not hold; what is about "
                "single people stays in the store"
            )
    for name, fits in fields.items():
        if name not in item:
            if name not in optional:
                raise ValueError(f"{where} has no {name!r}")
        elif not fits(item[name]):
            raise ValueError(f"{where} has a {name!r} that is not as results have it")


def _is_word(value: Any) -> bool:
    is_short = isinstance(value, str) and len(value) <= LONGEST_WORD and value.isprintable()
    # Pseudonyms are digests; no level of an axis looks like one.
    return is_short and not re.search(r"[0-9a-f]{16}", value)


def _is_attacker(value: Any) -> bool:
    """`undo`, `the folder`, `mlp:depth=3,width=500`: our own short names, no text of anybody."""
    return isinstance(value, str) and re.fullmatch(r"[a-z0-9:=,+ -]{1,40}", value) is not None


def _is_sentence(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_SENTENCE


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_axes(value: Any) -> bool:
    """Names to short words or numbers; no name of something that single people have."""
    if not isinstance(value, dict) or len(value) > 30:
        return False
    names = all(_is_word(name) and name.lower() not in PERSONAL for name in value)
    levels = all(_is_word(level) or _is_number(level) for level in value.values())
    counts = not any(isinstance(value.get(name), str) for name in COUNTS)
    return names and levels and counts and value.get("unit", "–") in UNITS


def _or_null(fits: Check) -> Check:
    return lambda value: value is None or fits(value)


def _list_of(fits: Check, most: int | None = None) -> Check:
    return lambda value: (
        isinstance(value, list) and (most is None or len(value) <= most) and all(map(fits, value))
    )


def _record(fields: Mapping[str, Check], optional: set[str] | None = None) -> Check:
    def fits(value: Any) -> bool:
        # The innermost complaint names the field; a plain "not as it should be" would hide it.
        _check(value, fields, optional or set(), "an entry")
        return True

    return fits


_TRIPLE: Check = lambda value: _list_of(_is_number)(value) and len(value) == 3  # noqa: E731
_ROW: dict[str, Check] = {
    "axes": _is_axes,
    "seed": _is_count,
    "kind": _is_word,
    "target": _is_word,
    "metric": _is_word,
    "value": _or_null(_is_number),
    "degenerate": lambda value: isinstance(value, bool),
    "chance": _or_null(_is_number),
    **dict.fromkeys(("winner", "holds"), _or_null(_is_attacker)),
    **dict.fromkeys(("candidate", "single_class"), lambda value: isinstance(value, bool)),
}
_ROW_OPTIONAL = {"chance", "degenerate", "winner", "holds", "candidate", "single_class"}
_EFFECT: dict[str, Check] = {
    **dict.fromkeys(("value", "low", "high"), _is_number),
    "name": _is_sentence,
}
_EXCLUSIONS: dict[str, Check] = {
    **dict.fromkeys(("degenerate", "single_class"), _is_count),
    "missing": _list_of(_is_word),
}
_UNIT: Check = lambda value: value in ("split", "author")  # noqa: E731
_DIFFERENCE: dict[str, Check] = {
    **dict.fromkeys(("first", "second", "kind", "target", "metric"), _is_word),
    **dict.fromkeys(("value", "low", "high", "p"), _is_number),
    "unit": _UNIT,
    "n": _is_count,
    "effect": _or_null(_record(_EFFECT)),
    "p_holm": _or_null(_is_number),
    "exclusions": _record(_EXCLUSIONS, {"single_class"}),
    "note": _is_sentence,
}
_AT_UTILITY: dict[str, Check] = {
    **dict.fromkeys(("first", "second", "target", "metric"), _is_word),
    **dict.fromkeys(("first_leakage", "second_leakage", "difference"), _TRIPLE),
    "utility": _is_number,
    "unit": _UNIT,
    "n": _is_count,
    **dict.fromkeys(("degenerate", "single_class"), _is_count),
    "note": _is_sentence,
}
_CLAIM: dict[str, Check] = {
    "text": _is_sentence,
    "verdict": lambda value: value in VERDICTS,
    **dict.fromkeys(("value", "low", "high"), _or_null(_is_number)),
    "why": _is_sentence,
    **dict.fromkeys(("metric", "relation", "scale"), _is_word),
}
_CLAIM_OPTIONAL = {"value", "low", "high", "why", "metric", "relation", "scale"}
_LAYOUT: dict[str, Check] = {
    **dict.fromkeys(("title", "across"), _is_word),
    "down": lambda value: _is_word(value) or _list_of(_is_word, 4)(value),
    "where": _is_axes,
    "winners": lambda value: isinstance(value, bool),
}
_ANALYSIS: dict[str, Check] = {
    "factors": _list_of(_is_word, 2),
    "where": _is_axes,
    "blocks": _list_of(_is_word, 5),
}
_ORIGIN: dict[str, Check] = {
    "date": _is_word,
    "seeds": _list_of(_is_count, MOST_SEEDS),
    "seconds": _is_number,
    "size": _is_word,
    "stand_ins": _is_sentence,
}
_DOCUMENT: dict[str, Check] = {
    "schema": _is_count,
    # Parts of file names: they must not leave their folder.
    **dict.fromkeys(
        ("paper", "plan"),
        lambda value: (
            isinstance(value, str) and re.fullmatch(r"[a-z0-9-]{1,60}", value) is not None
        ),
    ),
    "title": _is_word,
    **dict.fromkeys(("headline", "why", "exploratory"), _is_sentence),
    "verdict": lambda value: value in VERDICTS,
    "origin": _record(_ORIGIN),
    "rows": _list_of(_record(_ROW, _ROW_OPTIONAL)),
    "layouts": _list_of(_record(_LAYOUT, {"winners"}), 20),
    "blocks": _list_of(_is_word, 5),
    "analyses": _list_of(_record(_ANALYSIS, {"blocks"}), 20),
    "differences": _list_of(_record(_DIFFERENCE)),
    "at_utility": _list_of(_record(_AT_UTILITY, {"single_class"})),
    "claims": _list_of(_record(_CLAIM, _CLAIM_OPTIONAL), 100),
}
_OPTIONAL = {"blocks", "analyses", "differences", "at_utility", "claims", "exploratory"}


def count_verdicts(verdicts: Sequence[str]) -> str:
    """How many there are of each, in the order of `VERDICTS`.

    >>> count_verdicts(["fails", "holds", "holds"])
    '2 hold, 1 fails'
    """
    counts = [(verdict, verdicts.count(verdict)) for verdict in VERDICTS]
    return ", ".join(
        f"{count} {verdict if count == 1 else _OF_MANY[verdict]}"
        for verdict, count in counts
        if count
    )
