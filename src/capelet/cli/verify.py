"""`capelet verify`: doubt the guarantee of a recipe, noise step by noise step."""

from __future__ import annotations

import typer

from capelet.cli import options
from capelet.cli.terminal import print_json, progress_bars


def verify(
    recipe: options.Recipe,
    samples: options.Samples = 1_000_000,
    confidence: options.Confidence = 0.999,
    specimens: options.Specimens = False,
    json: options.Json = False,
) -> None:
    """Try to refute the guarantee of each noise step; exit with 1 when one is refuted.

    Example: `capelet verify --recipe private.toml`
    """
    from capelet.judge import verify_recipe
    from capelet.release import PrivateEncoder

    encoder = PrivateEncoder.from_recipe(recipe, specimens=specimens)
    with progress_bars(json) as progress:
        verdicts = verify_recipe(encoder, samples, confidence=confidence, progress=progress)
    if json:
        print_json([verdict.describe() for verdict in verdicts])
    else:
        for verdict in verdicts:
            print(f"[{'stands' if verdict.passed else 'refuted'}] {verdict.sentence}")
    if not all(verdict.passed for verdict in verdicts):
        # 1 for a false claim, as for a gate that closes; 2 is bad input.
        raise typer.Exit(1)
