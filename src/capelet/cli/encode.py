"""`capelet encode`: a file in, a file of released vectors out; or a folder in, a folder out."""

from __future__ import annotations

import json as jsonlib
import sys
from typing import TYPE_CHECKING, cast

from capelet.cli import options
from capelet.cli.terminal import echo, print_trained, progress_bars

if TYPE_CHECKING:
    from capelet.release.charging import Repeats

# What becomes of rows that trained the encoder, without and with --only-unseen.
_CONSEQUENCES = {
    False: "they have only what is promised to training texts (--only-unseen leaves them out)",
    True: "they are left out",
}


def encode(
    source: options.Source,
    target: options.Target,
    recipe: options.Recipe,
    text: options.Text = None,
    vectors: options.Vectors = None,
    drop_empty: options.DropEmpty = False,
    encoding: options.Encoding = None,
    separator: options.Separator = None,
    subject: options.Subject = None,
    ledger: options.Ledger = None,
    budget: options.Budget = None,
    repeats: options.Repeats = None,
    anchor: options.Anchor = None,
    overwrite: options.Overwrite = False,
    only_unseen: options.OnlyUnseen = False,
    engine: options.Engine = None,
    address: options.Address = None,
    workers: options.Workers = None,
    json: options.Json = False,
) -> None:
    """Release the vectors of a file or folder; every row and budget is checked before any draw.

    Example: `capelet encode mails.parquet out.parquet --text body --recipe private.toml`
    """
    from capelet.data.formats import Format
    from capelet.release import PrivateEncoder, overlap
    from capelet.release.batch import Workers
    from capelet.release.batch import encode as encode_file

    is_plain = (engine, address, workers) == (None, None, None)
    crew = None if is_plain else Workers(recipe, engine or "local", workers, address)
    encoder = PrivateEncoder.from_recipe(recipe)
    layout = Format(encoding, separator, drop_empty)
    trained = overlap.trained_rows(encoder, source, text, vectors, layout)
    leave_out = overlap.only_unseen(encoder, trained) if only_unseen else None
    print_trained(encoder, trained, _CONSEQUENCES[only_unseen])
    with progress_bars(json) as progress:
        release = encode_file(
            source,
            target,
            encoder,
            text=text,
            vectors=vectors,
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
    echo(jsonlib.dumps(summary) if json else f"{release.sentence()}\nreleased: {release.target}")
