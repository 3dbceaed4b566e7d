"""`capelet cache`: the raw vectors on this machine, which are as private as the texts."""

from __future__ import annotations

from capelet.cli.doors import Json
from capelet.cli.terminal import answer


def clear(
    *,
    json: Json = False,
) -> None:
    """Forget all cached vectors.

    Example: `capelet cache clear`
    """
    from capelet.encoders import clear_cache

    size = clear_cache()
    answer(json, {"bytes": size}, f"forgot {size / 1e6:.1f} MB of vectors")


def where(
    *,
    json: Json = False,
) -> None:
    """Say where the cache is.

    Example: `capelet cache where`
    """
    from capelet.files import cache_folder

    answer(json, {"folder": str(cache_folder())}, cache_folder())
