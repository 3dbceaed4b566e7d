"""Encoding with the default encoder against sentence-transformers' default `encode`, in one run.

    python benchmarks/encoding.py [--texts N] [--repeat R]

The contestants take turns and the best time of each counts, so that whatever else the machine does
falls on all of them alike; the ratio of processor time beside it hardly feels it at all. The last
line is JSON. The texts are the `text`
column of `ag_entities.parquet` in the folder that CAPELET_DATA names.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet

from capelet.encoders import load
from capelet.encoders.batches import cores
from capelet.encoders.export import cosines
from capelet.encoders.folders import transformer_folder
from capelet.encoders.transformer import sentence_transformer
from capelet.interfaces import Vectors
from tables import result, table, wanted

WANTED = {
    "torch": (1.0, "least", 0.9999),
    "onnx": (1.3, "least", 0.9999),
    "int8": (2.5, "mean", 0.99),
}


def texts(count: int) -> list[str]:
    """`count` news texts, evenly spaced over the file so that every length takes part."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CAPELET_DATA", beside))
    column = pyarrow.parquet.read_table(folder / "ag_entities.parquet").column("text")
    every: list[str] = column.to_pylist()
    rows = np.linspace(0, len(every) - 1, min(count, len(every))).astype(int)
    return [every[row] for row in rows]


def measure(
    contestants: dict[str, Callable[[list[str]], Vectors]], sample: list[str], repeat: int
) -> tuple[dict[str, float], dict[str, float], dict[str, Vectors]]:
    """Seconds on the clock and of processor time, best of `repeat`, and the vectors of each.

    Every call gets the whole sample: both sides sort by length, and a smaller call would cost the
    peer more padding than its users see.
    """
    clock = {name: float("inf") for name in contestants}
    processor = dict(clock)
    vectors: dict[str, Vectors] = {}
    for _ in range(repeat):
        for name, encode in contestants.items():
            before = time.perf_counter(), time.process_time()
            vectors[name] = encode(sample)
            after = time.perf_counter(), time.process_time()
            clock[name] = min(clock[name], after[0] - before[0])
            processor[name] = min(processor[name], after[1] - before[1])
    return clock, processor, vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()

    sample = texts(arguments.texts)
    peer = sentence_transformer(transformer_folder("minilm"), device="cpu")
    encoders = {name: load("minilm", name) for name in WANTED}
    contestants: dict[str, Callable[[list[str]], Vectors]] = {
        "sentence-transformers": lambda part: peer.encode(part, show_progress_bar=False),
        "torch": lambda part: encoders["torch"].encode(part),
        "onnx": lambda part: encoders["onnx"].encode(part),
        "int8": lambda part: encoders["int8"].encode(part),
    }
    for encode in contestants.values():
        encode(sample[:64])  # export, load and warm up before the clock runs

    best, processor, vectors = measure(contestants, sample, arguments.repeat)
    base, work = best["sentence-transformers"], processor["sentence-transformers"]
    figures: dict[str, dict[str, float]] = {}
    print(f"{len(sample)} texts, best of {arguments.repeat}, {cores()} cores")
    for name, seconds in best.items():
        cosine = cosines(vectors[name], vectors["sentence-transformers"])
        figures[name] = {
            "seconds": round(seconds, 3),
            "ratio": round(base / seconds, 3),
            "processor_ratio": round(work / processor[name], 3),
            "mean_cosine": round(float(cosine.mean()), 6),
            "least_cosine": round(float(cosine.min()), 6),
        }
    table(
        ("back-end", "texts/s", "ratio", "of CPU", "mean cosine", "least cosine"),
        {
            name: (
                f"{len(sample) / row['seconds']:.0f}",
                f"{row['ratio']:.2f}",
                f"{row['processor_ratio']:.2f}",
                f"{row['mean_cosine']:.5f}",
                f"{row['least_cosine']:.5f}",
            )
            for name, row in figures.items()
        },
    )
    for name, (ratio, which, cosine_wanted) in WANTED.items():
        row = figures[name]
        met = row["ratio"] >= ratio and row[f"{which}_cosine"] >= cosine_wanted
        wanted(f"{name}: wanted {ratio} × at {which} cosine {cosine_wanted}", met)
    packages = ("torch", "sentence-transformers", "onnxruntime")
    result("encoding", packages, texts=len(sample), result=figures)


if __name__ == "__main__":
    main()
