"""`capelet verify`: doubt the guarantee of a recipe, of its whole road, or of a released file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from capelet.cli.doors import Json
from capelet.cli.terminal import echo, print_json, progress_bars
from capelet.errors import CapeletError
from capelet.question import Count

if TYPE_CHECKING:
    from capelet.judge import Inspection, Verdict


def verify(
    file: Annotated[
        Path | None, "A released Parquet file: what does it tell beside its vectors?"
    ] = None,
    /,
    *,
    recipe: Annotated[
        Path | None, "A TOML recipe of the private encoder; steps: encoder, map, {mechanisms:or}."
    ] = None,
    pipeline: Annotated[
        bool, "Judge the whole road: release neighbouring files, compare what leaves."
    ] = False,
    samples: Annotated[
        Count | None, "Outputs drawn of each input of a noise step [1000000]."
    ] = None,
    confidence: Annotated[
        float | None, "How sure a refutation of a noise step must be [0.999]."
    ] = None,
    specimens: Annotated[bool, "Allow known-broken steps, to see them fail."] = False,
    json: Json = False,
) -> None:
    """Try to refute a guarantee; exit with 1 when it is refuted.

    With `--recipe`, that of each noise step, by many outputs. With `--pipeline`, that nothing else
    leaves with the vectors. With a released file, `capelet verify out.parquet`, that it tells
    nothing beside its vectors.

    Example: `capelet verify --recipe private.toml --pipeline`
    """
    from capelet.judge import inspect_file, verify_pipeline, verify_recipe
    from capelet.release import PrivateEncoder

    _check_question(file, recipe, pipeline)
    sampling = {"samples": samples, "confidence": confidence}
    precision: dict[str, Any] = {key: value for key, value in sampling.items() if value is not None}
    if precision and (pipeline or recipe is None):
        raise CapeletError(
            f"--{' and --'.join(precision)}: only noise steps are judged by samples; leave it out "
            "for a released file and with --pipeline, whose checks have sizes of their own"
        )
    results: Sequence[Verdict | Inspection]
    if recipe is None:
        assert file is not None
        results = [inspect_file(file)]
    else:
        encoder = PrivateEncoder.from_recipe(recipe, specimens=specimens)
        with progress_bars(json) as progress:
            if pipeline:
                results = [verify_pipeline(encoder, progress=progress)]
            else:
                results = verify_recipe(encoder, **precision, progress=progress)
    if json:
        print_json([result.describe() for result in results])
    else:
        for result in results:
            _print_result(result)
    if not all(result.passed for result in results):
        # 1 for a false claim, as for a gate that closes; 2 is bad input.
        raise SystemExit(1)


def _print_result(result: Verdict | Inspection) -> None:
    """A sentence for a verdict; for an inspection a line more for each thing that is told."""
    from capelet.judge import Verdict

    mark = "[stands]" if result.passed else "[refuted]"
    if isinstance(result, Verdict):
        echo(f"{mark} {result.sentence}")
        return
    echo(f"{mark} {result.headline}.")
    for item in result.disclosures:
        echo(f"  {'fault' if item.is_fault else 'declared'} ({item.check}): {item.sentence}")


def _check_question(file: Path | None, recipe: Path | None, pipeline: bool) -> None:
    if (file is None) == (recipe is None):
        raise CapeletError(
            "give either --recipe, a private encoder to doubt, or a released Parquet file; "
            f"{'both were' if file is not None else 'neither was'} given"
        )
    if pipeline and recipe is None:
        raise CapeletError("--pipeline releases files through a recipe; give --recipe")
