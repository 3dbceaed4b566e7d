"""`capelet encode` and `capelet verify`: let vectors out, and doubt their guarantee."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from capelet.cli.shared import (
    JsonFlag,
    TextColumn,
    VectorColumn,
    app,
    progress_bars,
    sentences,
)


@app.command(
    epilog="Example: `capelet encode mails.parquet out.parquet --text body --recipe private.toml`"
)
@sentences
def encode(
    source: Annotated[
        Path, typer.Argument(help="A Parquet, CSV or JSONL file of any size, or a set.")
    ],
    target: Annotated[Path, typer.Argument(help="The Parquet file of released vectors.")],
    recipe: Annotated[Path, typer.Option(help="A TOML recipe, or a private encoder's folder.")],
    text: TextColumn = None,
    vectors: VectorColumn = None,
    subject: Annotated[str | None, typer.Option(help="Column of whom a row is about.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="File in which subjects are charged.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="The most ε that a subject may cost.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Draw again, and pay again, for texts released before.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the target.")] = False,
    json: JsonFlag = False,
) -> None:
    """Release a file's vectors; all rows and budgets are checked before any noise is drawn."""
    from capelet.release import PrivateEncoder
    from capelet.release.batch import encode as run

    private = PrivateEncoder.from_recipe(recipe)
    with progress_bars(json) as progress:
        done = run(
            source,
            target,
            private,
            text=text,
            vectors=vectors,
            subject=subject,
            ledger=ledger,
            budget=budget,
            fresh=fresh,
            overwrite=overwrite,
            progress=progress,
        )
    summary = {"target": str(done.target), "rows": done.rows, "drawn": done.drawn}
    print(jsonlib.dumps(summary) if json else f"{done.sentence()}\nreleased: {done.target}")


@app.command(epilog="Example: `capelet verify --recipe private.toml`")
@sentences
def verify(
    recipe: Annotated[Path, typer.Option(help="A TOML recipe, or a private encoder's folder.")],
    samples: Annotated[int, typer.Option(help="Outputs drawn of each input.")] = 1_000_000,
    confidence: Annotated[float, typer.Option(help="How sure a refutation must be.")] = 0.999,
    specimens: Annotated[
        bool, typer.Option("--specimens", help="Allow known-broken steps, to see them fail.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Try to refute the guarantee of each noise step; exit with 1 when one is refuted."""
    from capelet.judge import verify_recipe
    from capelet.release import PrivateEncoder

    private = PrivateEncoder.from_recipe(recipe, specimens=specimens)
    with progress_bars(json) as progress:
        judged = verify_recipe(private, samples, confidence=confidence, progress=progress)
    if json:
        print(jsonlib.dumps([verdict.describe() for verdict in judged], ensure_ascii=False))
    else:
        for verdict in judged:
            print(f"[{'stands' if verdict.passed else 'refuted'}] {verdict.sentence}")
    if not all(verdict.passed for verdict in judged):
        raise typer.Exit(1)
