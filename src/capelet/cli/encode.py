"""`capelet encode`: a file in, a file of released vectors out; or a folder in, a folder out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from capelet.cli.doors import Anchor, Group, Json
from capelet.cli.terminal import answer, echo, print_trained, progress_bars
from capelet.question import Columns, Machines

if TYPE_CHECKING:
    from capelet.release.charging import Repeats

# What becomes of rows that trained the encoder, without and with --only-unseen.
_CONSEQUENCES = {
    False: "they have only what is promised to training texts (--only-unseen leaves them out)",
    True: "they are left out",
}


def encode(
    source: Annotated[
        str,
        "A Parquet, CSV or JSONL file of any size, or a set; or many Parquet files: a folder, a "
        "pattern in quotes, an address.",
    ],
    target: Annotated[str, "The Parquet file of released vectors; of many files, a folder."],
    /,
    *,
    recipe: Annotated[
        Path,
        Group.DATA,
        "A TOML recipe of the private encoder; steps: encoder, map, {mechanisms:or}.",
    ],
    columns: Annotated[Columns, Group.DATA, "text vectors drop_empty encoding separator"],
    subject: Annotated[str | None, "Column of whom a row is about."] = None,
    ledger: Annotated[
        str | None, "File or postgresql:// URL in which subjects are charged."
    ] = None,
    budget: Annotated[
        float | None, "The most ε that a subject may cost; a ledger's first stays its cap."
    ] = None,
    repeats: Annotated[
        str | None,
        "fresh (default): draw and pay for each row; same: equal texts of a person get the same "
        "vector, which shows that they are equal.",
    ] = None,
    anchor: Anchor = None,
    overwrite: Annotated[bool, "Replace the target."] = False,
    only_unseen: Annotated[bool, "Leave out rows that trained the private encoder."] = False,
    machines: Machines,
    json: Json = False,
) -> None:
    """Release the vectors of a file or folder; every row and budget is checked before any draw.

    Example: `capelet encode mails.parquet out.parquet --text body --recipe private.toml`
    """
    from capelet.data.formats import Format
    from capelet.release import PrivateEncoder, overlap
    from capelet.release.batch import Workers
    from capelet.release.batch import encode as encode_file

    crew = None
    if machines != Machines():
        crew = Workers(recipe, machines.engine or "local", machines.workers, machines.address)
    encoder = PrivateEncoder.from_recipe(recipe)
    layout = Format(columns.encoding, columns.separator, columns.drop_empty)
    trained = overlap.trained_rows(encoder, source, columns.text, columns.vectors, layout)
    leave_out = overlap.only_unseen(encoder, trained) if only_unseen else None
    print_trained(encoder, trained, _CONSEQUENCES[only_unseen])
    with progress_bars(json) as progress:
        release = encode_file(
            source,
            target,
            encoder,
            text=columns.text,
            vectors=columns.vectors,
            subject=subject,
            ledger=ledger,
            budget=budget,
            repeats=cast("Repeats | None", repeats),
            anchor=anchor,
            overwrite=overwrite,
            leave_out=leave_out,
            layout=layout,
            progress=progress,
            workers=crew,
        )
    for warning in release.warnings:
        echo(f"capelet: {warning}", file=sys.stderr)
    summary = {"target": str(release.target), "rows": release.rows, "drawn": release.drawn}
    answer(json, summary, release.sentence(), f"released: {release.target}")
