"""`capelet report`, `capelet list` and `capelet cache`: look at what there is."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from capelet.cli.shared import JsonFlag, app, sentences

cache_app = typer.Typer(no_args_is_help=True, help="The cache of raw vectors on this machine.")
app.add_typer(cache_app, name="cache")


@app.command(epilog="Example: `capelet report runs/before runs/after --out runs/compared`")
@sentences
def report(
    run: Annotated[
        Path,
        typer.Argument(
            help="A folder that `audit`, `protect`, `invert`, `membership` or `lm attack` wrote."
        ),
    ],
    other: Annotated[Path | None, typer.Argument(help="A second one, to compare with.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write; the (second) run itself.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Write the report of a run again, or of two runs side by side."""
    from capelet.files import check_writable
    from capelet.findings import Findings
    from capelet.reports import write_comparison, write_protection, write_report

    first = Findings.load(run)
    second = Findings.load(other) if other is not None else None
    folder = out or other or run
    check_writable(folder)
    if second is not None:
        page = write_comparison(first, second, folder)
    elif "protect" in first.provenance and (run / "before").is_dir():
        page = write_protection(Findings.load(run / "before"), first, folder)
    else:
        page = write_report(first, folder)
    print(jsonlib.dumps({"report": str(page)}) if json else f"report: {page}")


@app.command(name="list", epilog="Example: `capelet list --json`")
@sentences
def list_(json: JsonFlag = False) -> None:
    """What there is, one line each: encoders, mechanisms, defences, sets, attackers, splits."""
    from capelet.attacks.attribute import FAMILIES
    from capelet.attacks.inversion.run import ATTACKS as INVERSIONS
    from capelet.data.datasets import DATASETS, is_available
    from capelet.data.splits import SPLITS
    from capelet.defences import METHODS
    from capelet.encoders import ENCODERS
    from capelet.evaluation.attacks import ATTACKS
    from capelet.mechanisms import MECHANISMS

    def first_line(thing: object) -> str:
        return (thing.__doc__ or "").strip().splitlines()[0]

    rooms = {
        "encoders": dict(ENCODERS),
        "mechanisms": {name: first_line(step) for name, step in MECHANISMS.items()},
        "defences": {name: item.summary for name, item in METHODS.items()},
        "data sets": {
            name: f"{about.title} ({'here' if is_available(name) else 'not here'}; {about.licence})"
            for name, about in DATASETS.items()
        },
        "kinds of attack": {name: kind.title for name, kind in ATTACKS.items()},
        "inversion attacks": dict(INVERSIONS),
        "attackers": {name: first_line(type(family)) for name, family in FAMILIES.items()},
        "splits": {name: first_line(kind) for name, kind in SPLITS.items()},
    }
    if json:
        print(jsonlib.dumps(rooms, ensure_ascii=False))
        return
    for room, things in rooms.items():
        print(room)
        for name, line in things.items():
            print(f"  {name:<22}{line}")


@cache_app.command(name="clear", epilog="Example: `capelet cache clear`")
@sentences
def cache_clear(json: JsonFlag = False) -> None:
    """Forget all cached vectors."""
    from capelet.encoders import clear_cache

    freed = clear_cache()
    print(jsonlib.dumps({"bytes": freed}) if json else f"forgot {freed / 1e6:.1f} MB of vectors")


@cache_app.command(name="where", epilog="Example: `capelet cache where`")
@sentences
def cache_where(json: JsonFlag = False) -> None:
    """Say where the cache is."""
    from capelet.files import cache_folder

    print(jsonlib.dumps({"folder": str(cache_folder())}) if json else str(cache_folder()))
