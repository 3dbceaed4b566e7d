"""The check: what a table looks like, what can be asked of it, and how sure an answer would be.

It measures nothing and encodes nothing. It guesses which column is what, tries that out as far as
the splits, and gives the command that an audit needs. What it shows are names of columns, types and
counts; no value of a cell, and no name of a class.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from capelet.data.columns import ColumnFacts, count_repetitions, facts_of
from capelet.data.corpus import Corpus, as_values
from capelet.data.datasets import load
from capelet.data.formats import SEPARATORS, Format, detect_encoding, detect_separator
from capelet.data.headers import HIDDEN, Header, printable
from capelet.data.labels import RARE, Attribute, attributes
from capelet.data.readers import check_names, read
from capelet.data.splits import SHARES
from capelet.data.streams import is_named
from capelet.data.tables import Sheet
from capelet.errors import DataError, Door, name_command, name_field, spell
from capelet.evaluation.plan import SEEDS, Plan
from capelet.findings.intervals import NORMAL_95

WIDTH = 80
# How alike the hits on two texts of one person are (intraclass correlation), of which nothing is
# known yet: an assumption on the safe side. Of 888 reviews by 131 writers it foretells ±5.5 points
# at most where the audit's intervals were ±4 to ±4.5.
ALIKE = 0.05
# A verdict "no leak found" needs an interval at least this narrow.
NARROW = 0.05


@dataclass(frozen=True)
class Roles:
    """Which column is likely what."""

    text: str | None = None
    label: str | None = None
    private: tuple[str, ...] = ()
    author: str | None = None
    vectors: str | None = None

    def of(self, column: str) -> str:
        """The role of a column, or nothing."""
        for role in ("text", "label", "author", "vectors"):
            if getattr(self, role) == column:
                return role
        return "private" if column in self.private else ""


@dataclass(frozen=True)
class Check:
    """What was seen of a table, and the call that audits it."""

    name: str
    rows: int
    format: str
    columns: tuple[ColumnFacts, ...]
    roles: Roles
    problems: tuple[str, ...]
    duplicates: int = 0
    people: int | None = None
    precision: tuple[tuple[str, float], ...] = ()
    command: str | None = None
    names_shown: bool = True

    def spelled(self, door: Door) -> Check:
        """The check with the fields in its sentences as this door writes them."""
        return replace(self, problems=tuple(spell(item, door) for item in self.problems))

    def to_json(self) -> dict[str, Any]:
        """For machines; the names of columns only where they surely are names."""
        document = asdict(self)
        if not self.names_shown:
            for place, column in enumerate(document["columns"], 1):
                column["name"] = f"column {place}"
        return document

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def lines(self) -> list[str]:
        """The check for a terminal of 80 columns; the command is one line, to be pasted."""
        head = f"{printable(self.name)}: {_count(self.rows, 'row')}, "
        head += _count(len(self.columns), "column") + (f"; {self.format}" if self.format else "")
        lines = [*textwrap.wrap(head, WIDTH), "", *self._table()]
        sentences = [*self.problems, *self._extent()]
        if sentences:
            lines.append("")
        for sentence in sentences:
            lines += textwrap.wrap(
                sentence,
                WIDTH,
                initial_indent="- ",
                subsequent_indent="  ",
                break_on_hyphens=False,
            )
        if self.command:
            lines += ["", "To audit it:", "", self.command]
        return lines

    def _table(self) -> list[str]:
        form = "{:<25} {:<29} {:>6} {:>9} {}"
        lines = [form.format("column", "holds", "empty", "different", "likely")]
        for place, column in enumerate(self.columns, 1):
            name = printable(column.name) if self.names_shown else f"column {place}"
            name = name if len(name) <= 25 else name[:24] + "…"
            role = self.roles.of(column.name)
            distinct = str(column.distinct) if column.distinct else ""
            cells = (name, column.sentence(), column.missing or "", distinct, role)
            lines.append(form.format(*cells).rstrip())
        return lines

    def _extent(self) -> list[str]:
        sentences = []
        if self.duplicates:
            sentences.append(
                f"{_count(self.duplicates, 'row')} repeat the text of another row; identical texts "
                "stay on one side of a split."
            )
        if self.people is not None:
            victims = round(self.people * SHARES["victims"])
            sentences.append(
                f"{_count(self.people, 'person', 'people')} wrote the texts; about {victims} are "
                "the victims of each split, and nobody stands on two sides."
            )
        if self.precision:
            halves = [f"{printable(name)} ±{100 * half:.0f}" for name, half in self.precision]
            sentence = f"How sure a verdict will be, in points: {', '.join(halves)}."
            if round(max(half for _, half in self.precision), 2) > NARROW:
                sentence += " “No leak found” needs ±5 or better: more "
                sentence += "texts." if self.people is None else "people."
            sentences.append(sentence)
        return sentences


def check(
    data: Any,
    *,
    text: str | None = None,
    label: str | None = None,
    private: str | Sequence[str] = (),
    author: str | None = None,
    vectors: str | None = None,
    encoding: str | None = None,
    separator: str | None = None,
) -> Check:
    """Look at a file, a data frame, `datasets`, lists or a named set before it is audited.

    Example: `print(check("mails.csv"))`. Columns that are named are taken for what they are said to
    be; the others are guessed.
    """
    secrets = (private,) if isinstance(private, str) else tuple(private)
    roles = Roles(text, label, secrets, author, vectors)
    return inspect(data, roles, Format(encoding, separator)).spelled("python")


def inspect(data: Any, choice: Roles, layout: Format) -> Check:
    """What `check` finds, its sentences yet to be spelled by the door where they are read."""
    if isinstance(data, str) and is_named(data):
        return _check_set(data)
    path = Path(data) if isinstance(data, str | Path) else None
    layout = _layout(path, layout)
    sheet = Sheet.of(data, layout)
    roles = (choice.text, choice.label, choice.author, choice.vectors, *choice.private)
    header = check_names(sheet, [name for name in roles if name is not None])
    columns = tuple(facts_of(name, sheet.column(name)) for name in sheet.table.column_names)
    filled = _roles(columns, choice)
    problems = _header_problems(header)
    outline = Check(
        sheet.name, sheet.table.num_rows, _format_words(path, layout), columns, filled, problems
    )
    if not header.is_certain:
        # A command would name columns, and these may be somebody's words.
        return replace(outline, names_shown=False, roles=Roles())
    return _plan(outline, sheet, path, layout)


def column_names(data: str, layout: Format) -> list[str]:
    """The columns of a file, so that a list with commas can be told from a name with one."""
    path = Path(data)
    return list(Sheet.of(path, _layout(path, layout)).table.column_names)


def _check_set(name: str) -> Check:
    corpus = load(name)
    columns: dict[str, Any] = {"text": corpus.texts, corpus.label_name or "label": corpus.label}
    columns |= {**corpus.private, "author": corpus.author}
    sheet = Sheet.of({key: values for key, values in columns.items() if values is not None})
    facts = tuple(facts_of(column, sheet.column(column)) for column in sheet.table.column_names)
    roles = Roles(
        "text",
        corpus.label_name,
        tuple(corpus.private),
        "author" if corpus.author is not None else None,
    )
    outline = Check(name, len(corpus), "a named set", facts, roles, ())
    return _with_precision(outline, corpus, name_command("audit", name, out=f"runs/{name}"))


def _layout(path: Path | None, layout: Format) -> Format:
    """How the file is written down, seen from its bytes where it was not said."""
    if path is None or not path.is_file():
        return layout
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv", ".jsonl", ".ndjson"):
        return layout
    encoding = layout.encoding or detect_encoding(path)
    separator = layout.separator
    if separator is None and kind in (".csv", ".tsv"):
        separator = detect_separator(path, encoding)
    return Format(encoding, separator)


def _format_words(path: Path | None, layout: Format) -> str:
    words = [layout.encoding.upper()] if layout.encoding else []
    if layout.separator and path is not None:
        words.append(f"parted by {SEPARATORS.get(layout.separator, repr(layout.separator))}s")
    return ", ".join(words)


def _header_problems(header: Header) -> tuple[str, ...]:
    if header.is_row:
        return (
            "The first line looks like a row, not like names of columns: add a line with names; "
            "until then no column is named here.",
        )
    if not header.is_certain:
        return (
            f"It has {len(header.names)} columns {HIDDEN}. If there are names, give one of them, "
            f"as in {name_field('text', 'NAME')}.",
        )
    return ()


# ---- who is what ---------------------------------------------------------------------------------


def _roles(columns: Sequence[ColumnFacts], choice: Roles) -> Roles:
    """What was named, and a guess for the rest by kind and name."""
    free = [column for column in columns if not choice.of(column.name)]

    def pick(role: str, candidates: list[ColumnFacts]) -> str | None:
        by_user = getattr(choice, role)
        name = by_user if by_user is not None else (candidates[0].name if candidates else None)
        free[:] = [column for column in free if column.name != name]
        return name

    texts = [column for column in free if column.kind == "texts"]
    texts.sort(key=lambda column: (-column.hints_at("text"), -column.words))
    text = pick("text", texts)
    vectors = pick("vectors", [column for column in free if column.kind == "vectors"])
    author = pick("author", _authors(free))
    classes = [column for column in free if column.kind in ("classes", "numbers")]
    labels = [column for column in classes if column.hints_at("label")]
    label = pick("label", [item for item in labels if not item.hints_at("private")])
    rest = [column for column in free if column.kind in ("classes", "numbers", "lists")]
    secrets = [column.name for column in rest if column.hints_at("private")]
    # Without a telling name any column of classes may be what nobody should learn.
    secrets = secrets or [column.name for column in rest if column.kind == "classes"]
    return Roles(text, label, choice.private or tuple(secrets), author, vectors)


def _authors(columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    """Who may have written the texts: several people, and some of them more than once."""
    people = [
        column
        for column in columns
        if column.kind in ("names", "classes", "numbers", "identifiers")
        and 3 <= column.distinct < column.present
        and (column.hints_at("author") or column.kind == "names")
    ]
    return sorted(people, key=lambda column: (-column.hints_at("author"), -column.distinct))


# ---- what can be asked ---------------------------------------------------------------------------


def _plan(outline: Check, sheet: Sheet, path: Path | None, layout: Format) -> Check:
    """Try the roles out as far as the splits; what does not work is said and left out."""
    roles, facts = outline.roles, {column.name: column for column in outline.columns}
    problems = list(outline.problems)
    options: dict[str, Any] = {}
    required_columns = [
        name for name in (roles.text, roles.vectors, roles.author) if name is not None
    ]
    empty = [(name, facts[name].missing) for name in required_columns if name in facts]
    for name, missing in empty:
        if missing:
            options["drop_empty"] = True
            problems.append(
                f"{_count(missing, 'row')} have nothing in {printable(name)}; "
                f"{name_field('drop_empty')} leaves them out."
            )
    if roles.text is None and roles.vectors is None:
        problems.append(
            "No column looks like texts or vectors: name it with "
            f"{name_field('text')} or {name_field('vectors')}."
        )
        return replace(outline, problems=tuple(problems))
    targets = [name for name in (roles.label, *roles.private) if name is not None]
    for name in targets:
        if name in facts and facts[name].rare == 1:
            options["merge_rare"] = RARE
            problems.append(
                f"{printable(name)} has a class on fewer than {RARE} rows (on "
                f"{facts[name].smallest}); {name_field('merge_rare', RARE)} leaves it out of this "
                "attribute."
            )
        elif name in facts and facts[name].rare > 1:
            problems.append(
                f"{printable(name)} has {facts[name].rare} classes on fewer than {RARE} rows; they "
                "are merged into (other)."
            )
    roles, refusals = _measurable(sheet, roles, options)
    problems += refusals
    duplicates = 0
    if roles.text is not None:
        duplicates = count_repetitions(as_values(sheet.column(roles.text).to_pylist(), roles.text))
    outline = replace(outline, roles=roles, problems=tuple(problems), duplicates=duplicates)
    try:
        corpus = _read(sheet, roles, options)
        command = _command(path, roles, options, layout, is_empty=not targets)
        return _with_precision(outline, corpus, command)
    except DataError as error:
        return replace(outline, problems=(*problems, error.sentence + "."))


def _read(sheet: Sheet, roles: Roles, options: dict[str, Any]) -> Corpus:
    return read(sheet, **asdict(roles), **options)


def _measurable(sheet: Sheet, roles: Roles, options: dict[str, Any]) -> tuple[Roles, list[str]]:
    """The roles without what an audit would refuse, and why it would."""
    refusals: list[str] = []

    def works(name: str) -> bool:
        try:
            only = Roles(roles.text, None, (name,), roles.author, roles.vectors)
            attributes(_read(sheet, only, options).private)
        except DataError as error:
            refusals.append(error.sentence + ".")
            return False
        return True

    secrets = tuple(name for name in roles.private if works(name))
    label = roles.label if roles.label is None or works(roles.label) else None
    return replace(roles, private=secrets, label=label), refusals


def _command(
    path: Path | None, roles: Roles, options: dict[str, Any], layout: Format, is_empty: bool
) -> str:
    """The call of an audit: for a terminal where there is a file, else for Python."""
    if path is None:
        arguments = {key: value for key, value in {**asdict(roles), **options}.items() if value}
        if "private" in arguments:
            arguments["private"] = list(arguments["private"])
        listing = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        return f"capelet.audit(table, {listing})"
    encoding = layout.encoding
    separator = SEPARATORS.get(str(layout.separator), layout.separator)
    return name_command(
        "audit",
        path,
        text=roles.text,
        vectors=roles.vectors,
        label=roles.label,
        private=roles.private,
        author=roles.author,
        drop_empty=options.get("drop_empty"),
        merge_rare=options.get("merge_rare"),
        encoding=None if encoding in ("utf-8", "utf-8-sig", "utf-16") else encoding,
        separator=None if layout.separator == Format().separator_of(path) else separator,
        # Without an attribute the words themselves can be attacked.
        attacks="inversion" if not roles.private and roles.text is not None else None,
        out=f"runs/{path.stem}",
    )


def _with_precision(outline: Check, corpus: Corpus, command: str) -> Check:
    """How sure a verdict can be, from the people who would be victims."""
    plan = Plan.of(corpus, seeds=1) if corpus.private or corpus.label is not None else None
    people = len(set(corpus.author)) if corpus.author is not None else None
    texts_each = len(corpus) / people if people else 1.0
    secrets = plan.secrets if plan is not None else ()
    precision = tuple((item.name, half_width(item, texts_each)) for item in secrets)
    return replace(outline, people=people, precision=precision, command=command)


def half_width(attribute: Attribute, texts_each: float, seeds: int = SEEDS) -> float:
    """Half of the 95 % interval that an audit of so many rows can be expected to have.

    Balanced accuracy is the mean of K recalls, each a share of hits among n_k victims:
    Var = Σ p(1−p)/n_k / K², at most with p = ½. Over S seeds a row is a victim c ~ Bin(S, v)
    times, so N rows of a class are worth N·E[c]²/E[c²] = N·vS/(1−v+vS) victims. m texts of one
    person are alike: the variance grows by 1 + (m−1)ρ.
    """
    share = SHARES["victims"]
    worth = share * seeds / (1 - share + share * seeds)
    counts = np.array(list(attribute.counts().values()), dtype=float) * worth
    variance = (0.25 / counts).sum() / len(counts) ** 2 * (1 + (texts_each - 1) * ALIKE)
    return float(NORMAL_95 * np.sqrt(variance))


def _count(number: int, word: str, words: str = "") -> str:
    return f"{number:,} {word if number == 1 else words or word + 's'}"
