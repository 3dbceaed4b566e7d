"""What the commands read: the corpus, the encoder, and who was trained on."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capelet.cli.doors import split_names
from capelet.cli.terminal import echo
from capelet.errors import DataError, did_you_mean
from capelet.question import Columns, Source

if TYPE_CHECKING:
    from capelet.data.corpus import Corpus
    from capelet.release import PrivateEncoder

YES = frozenset({"1", "1.0", "true", "yes", "member"})
NO = frozenset({"0", "0.0", "false", "no", "non-member"})


def read_corpus(data: str, columns: Columns, split: str | None = None) -> Corpus:
    """The corpus of a file or of a named set; a file of a set's name comes first.

    A split by a column needs that column, which is read along.
    """
    from capelet.data.datasets import DATASETS
    from capelet.data.formats import Format
    from capelet.data.streams import is_named
    from capelet.data.tables import Sheet
    from capelet.workflows.audit import corpus_of

    if is_named(data):
        return corpus_of(data, columns, split)
    # Without a suffix it was meant as the name of a set.
    if not Path(data).suffix and not Path(data).exists():
        raise DataError(f"there is no file and no set {data!r}; {did_you_mean(data, DATASETS)}")
    sheet = Sheet.of(data, Format(columns.encoding, columns.separator))
    names = split_columns(columns.private, sheet.table.column_names)
    corpus = corpus_of(sheet, replace(columns, private=tuple(names)), split)
    for note in corpus.notes:
        echo(f"capelet: {note}", file=sys.stderr)
    return corpus


def read_texts(
    data: str, columns: Columns
) -> tuple[list[str], list[str] | None, dict[str, list[Any]]]:
    """The texts of a corpus, their authors if they are known, and its private columns."""
    corpus = read_corpus(data, columns)
    if corpus.texts is None:
        raise DataError(f"{corpus.name!r} holds no texts; name their column with --text")
    groups = {name: values.tolist() for name, values in corpus.private.items()}
    authors = None if corpus.author is None else corpus.author.tolist()
    return corpus.texts.tolist(), authors, groups


def read_auxiliary(data: str, corpus: Corpus, columns: Columns) -> Corpus:
    """Other data than the audited corpus, by columns of the same names; those it lacks are absent.

    Rows are not chosen by `where`, which speaks of the audited file.
    """
    from capelet.data.formats import Format
    from capelet.data.streams import is_named
    from capelet.data.tables import Sheet

    if is_named(data):
        return read_corpus(data, Columns())
    layout = Format(columns.encoding, columns.separator)
    names = Sheet.of(data, layout).table.column_names
    same = replace(
        columns,
        # A named set knows its columns; its texts are in a column of that name.
        text=columns.text or ("text" if columns.vectors is None else None),
        label=None,
        private=tuple(name for name in corpus.private if name in names),
        author=columns.author if columns.author in names else None,
        where=None,
    )
    return read_corpus(data, same)


def open_encoder(corpus: Corpus, source: Source) -> PrivateEncoder:
    """The private encoder of a recipe, a folder or a name; ready vectors need no encoder."""
    from capelet.encoders import DEFAULT, load
    from capelet.release import PrivateEncoder, is_private_encoder

    if source.recipe is not None:
        return PrivateEncoder.from_recipe(source.recipe)
    if corpus.vectors is not None:
        return PrivateEncoder()
    name = source.encoder or DEFAULT
    return PrivateEncoder(
        name if is_private_encoder(name) else load(name, source.backend or "auto")
    )


def split_columns(items: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """The columns that were named, once for each option; a list with commas if all are columns.

    >>> split_columns(["age, in years", "gender,country"], ["age, in years", "gender", "country"])
    ['age, in years', 'gender', 'country']
    """
    columns: list[str] = []
    for item in items or ():
        parts = split_names(item)
        # A name with a comma in it comes first; what is no column at all is refused by its name.
        is_list = item not in names and len(parts) > 1
        some = [part for part in parts if part in names]
        # Of a list with one slip the slip is complained of, not the whole list.
        columns += parts if is_list and some else [item if item in names else item.strip()]
    return list(dict.fromkeys(columns))


def member_flags(values: list[object], column: str) -> list[bool]:
    """The member column as yes and no; anything else is refused."""
    words = [str(value).strip().lower() for value in values]
    # A guess here would turn members into others, and every score with them.
    unclear = next((row for row, word in enumerate(words) if word not in YES | NO), None)
    if unclear is not None:
        raise DataError(
            f"row {unclear} of the column {column!r} is neither yes nor no; write yes/no, "
            "true/false or 1/0"
        )
    return [word in YES for word in words]
