"""What it costs that a row depends on itself alone, against the plain computation, in one run.

    python benchmarks/rows.py [--rows N] [--texts N] [--repeat R]

The peers are what a library does by itself: a matrix product in float32, and networks on padded
batches with all threads. Theirs give a row other last bits by its place and company. Whole
transformers are in `encoding.py`. The last line is JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from capelet.encoders.dual import PAD, Tokens, encode_tokens
from capelet.encoders.dual_networks import NETWORKS, SentenceNetwork, build
from capelet.mechanisms import Projection
from capelet.mechanisms.vectors import signs
from capelet.release.maps import Layer, Map
from tables import best_of, result, table

WORDS, WIDTH = 20_000, 256


def layer(inside: int, outside: int) -> Layer:
    random = np.random.default_rng(inside)
    weight = random.normal(size=(outside, inside)).astype(np.float32) / np.sqrt(inside)
    return Layer(weight, random.normal(size=outside).astype(np.float32))


def plain(layers: tuple[Layer, ...], rows: np.ndarray) -> np.ndarray:
    """The same layers by plain products."""
    for item in layers:
        rows = rows @ item.weight.T + item.bias
    return rows


def padded(network: SentenceNetwork, tokens: Tokens, budget: int = 1 << 15) -> np.ndarray:
    """Texts of like length together, padded to the longest: as it was before."""
    lengths = (tokens != PAD).sum(axis=1)
    order = np.argsort(-lengths, kind="stable")
    vectors = np.zeros((len(tokens), network.sizes["dimension"]), dtype=np.float32)
    start = 0
    with torch.inference_mode():
        while start < len(order):
            longest = max(1, int(lengths[order[start]]))
            rows = order[start : start + max(1, budget // longest)]
            vectors[rows] = network(torch.from_numpy(tokens[rows, :longest])).numpy()
            start += len(rows)
    return vectors


def sentences(count: int) -> Tokens:
    """Rows of word numbers, of the lengths that sentences have (a gamma law of mean 20)."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.gamma(4.0, 5.0, count).astype(int), 1, 60)
    tokens = random.integers(2, WORDS, (count, 60))
    tokens[np.arange(60) >= lengths[:, None]] = PAD
    return tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--texts", type=int, default=4_000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()

    rows = np.random.default_rng(0).normal(size=(arguments.rows, 384)).astype(np.float32)
    stacks = {
        "a map, 384 to 64": (layer(384, 64),),
        "two layers, 384 to 64 to 64": (layer(384, 64), layer(64, 64)),
        "an erasure, 384 to 384": (layer(384, 384),),
    }
    ours: dict[str, Callable[[], object]] = {}
    peers: dict[str, Callable[[], object]] = {}
    for name, layers in stacks.items():
        ours[name] = partial(Map(layers), rows)
        peers[name] = partial(plain, layers, rows)
    matrix = (signs(384, 64) / 8).astype(np.float32)
    name = "a projection, 384 to 64"
    ours[name], peers[name] = lambda: Projection(64)(rows), lambda: rows @ matrix
    counts = dict.fromkeys(ours, len(rows))
    tokens = sentences(arguments.texts)
    for kind in NETWORKS:
        torch.manual_seed(0)
        network = build(kind, WORDS, WIDTH, 2, WIDTH).eval()
        name = f"a dual encoder, {kind}"
        ours[name] = partial(encode_tokens, network, tokens)
        peers[name] = partial(padded, network, tokens)
        counts[name] = len(tokens)

    figures = {}
    for name, count in counts.items():
        pair = {"ours": (ours[name], count), "plain": (peers[name], count)}
        best = best_of(pair, max(1, arguments.repeat))
        figures[name] = {
            "per second": round(1 / best["ours"]),
            "time": round(best["ours"] / best["plain"], 2),
        }
    table(
        ("what", "rows/s", "time × plain"),
        {name: (f"{row['per second']:,}", f"{row['time']:.2f}") for name, row in figures.items()},
    )
    result("rows", ("numpy", "torch"), result=figures)


if __name__ == "__main__":
    main()
