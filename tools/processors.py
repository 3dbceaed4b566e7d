"""The numerical contracts as on other processors, and how far one text lies apart on two of them.

    python tools/processors.py            the tests marked `numerical`, once for each processor
    python tools/processors.py --apart    the same texts on each: how far from this machine's own
                                          vectors they come out, as Markdown

Libraries choose their kernels by the processor, and may be told which. What cannot be told
(ONNX Runtime) is run under qemu, which plays a Haswell, where Debian's `qemu-user-static` is
installed: with few texts, for it takes minutes. A row never depends on its company; between two
processors the bits may differ.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What torch's own kernels, MKL and oneDNN below it, and NumPy's OpenBLAS take the machine for.
PROCESSORS: dict[str, dict[str, str]] = {
    "no vectors, Haswell's BLAS, 1 thread": {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OPENBLAS_CORETYPE": "Haswell",
        "THREADS": "1",
    },
    "AVX2, Zen's BLAS, 2 threads": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "OPENBLAS_CORETYPE": "Zen",
        "THREADS": "2",
    },
}
EMULATOR = ("qemu-x86_64-static", "-cpu", "Haswell")
# Its engine chooses its kernels itself and takes no orders; its contract holds on this processor.
DEAF = "not e5"


def environment(settings: dict[str, str]) -> dict[str, str]:
    """This process's, with the settings of a processor."""
    threads = settings.get("THREADS", "1")
    own = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "TEST_THREADS": threads}
    return {**os.environ, **own, **{k: v for k, v in settings.items() if k != "THREADS"}}


def run_contracts() -> int:
    """Every row of the table, two at once; how each ended, and its faults."""

    def run(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-m", "numerical", "-k", DEAF, "tests"]
        return subprocess.run(
            command,
            cwd=ROOT,
            env=environment(PROCESSORS[name]),
            capture_output=True,
            text=True,
        )

    worst = 0
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for name, done in zip(PROCESSORS, pool.map(run, PROCESSORS), strict=True):
            lines = done.stdout.strip().splitlines() or [done.stderr.strip()]
            print(f"{name}: {lines[-1]}", flush=True)
            if done.returncode:
                print(done.stdout[-20_000:], done.stderr[-2000:], sep="\n")
                worst = done.returncode
    return worst


# ---- one text on two processors ------------------------------------------------------------------

# Runs in a process of its own: what it is compared with has read its settings at the start.
ENCODE = """
import json, sys, numpy
from capelet.encoders import load
from capelet.mechanisms import Projection
from capelet.release.maps import Layer, Map
texts, vectors = json.load(open(sys.argv[2])), {}
for name in sys.argv[3:]:
    encoder, _, backend = name.partition("/")
    model = load(encoder, backend or "auto")
    vectors[name] = model.encode(texts)
    alone = numpy.concatenate([model.encode([text]) for text in texts[:5]])
    if not numpy.array_equal(alone, vectors[name][:5]):
        sys.exit(f"{name}: a text alone has other bits than among others")
random = numpy.random.default_rng(0)
rows = random.normal(size=(500, 384)).astype(numpy.float32)
weight = random.normal(size=(64, 384)).astype(numpy.float32)
layers = Layer(weight, weight[:, 0], "relu"), Layer(weight[:, :64], weight[:, 1])
vectors["a map"] = Map(layers)(rows)
vectors["a projection"] = Projection(64)(rows)
numpy.savez(sys.argv[1], **vectors)
"""
NAMES = ["minilm/onnx", "minilm/int8", "minilm/torch", "wordllama", "e5"]
# Torch alone takes minutes to be imported there.
FEW, FEW_NAMES = 20, ["minilm/onnx", "minilm/int8", "wordllama"]


def vectors_of(
    folder: Path, prefix: tuple[str, ...], settings: dict[str, str], count: int, names: list[str]
) -> dict[str, object]:
    """What a processor makes of the texts; empty where it cannot run them."""
    import numpy as np

    import capelet

    place, texts = folder / "vectors.npz", folder / "texts.json"
    # Made here: under emulation the sample alone would take longer than all encoders.
    texts.write_text(json.dumps(capelet.load("reviews").texts[:count].tolist()), "utf-8")
    command = [*prefix, sys.executable, "-c", ENCODE, str(place), str(texts), *names]
    done = subprocess.run(command, env=environment(settings), capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
        print(f"not on {' '.join(prefix)} {settings}: {last}", file=sys.stderr)
        return {}
    with np.load(place) as content:
        vectors = {name: content[name] for name in content.files}
    place.unlink()
    return vectors


def apart(count: int) -> Iterator[tuple[str, str, float, float]]:
    """Processor, encoder, the largest difference of a coordinate, the least cosine."""
    import numpy as np

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = vectors_of(folder, (), {}, count, NAMES)
        others = {title: ((), settings) for title, settings in PROCESSORS.items()}
        if shutil.which(EMULATOR[0]):
            others["a Haswell, played by qemu"] = (EMULATOR, {})
        for title, (prefix, settings) in others.items():
            few, names = (FEW, FEW_NAMES) if prefix else (count, NAMES)
            for encoder, vectors in vectors_of(folder, prefix, settings, few, names).items():
                mine = np.asarray(own[encoder], np.float64)[: len(vectors)]
                theirs = np.asarray(vectors, np.float64)
                norms = np.linalg.norm(mine, axis=1) * np.linalg.norm(theirs, axis=1)
                cosines = (mine * theirs).sum(axis=1) / np.maximum(norms, 1e-30)
                yield title, encoder, float(np.abs(mine - theirs).max()), float(cosines.min())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--apart", action="store_true", help="compare vectors instead of testing")
    parser.add_argument("--texts", type=int, default=200, help="how many are compared")
    options = parser.parse_args()
    if not options.apart:
        return run_contracts()
    print("| processor | what | farthest coordinate | least cosine |")
    print("|---|---|---|---|", flush=True)
    for title, encoder, distance, cosine in apart(options.texts):
        # Written out: rounded, a cosine of .99999 would be one.
        shown = "0" if distance == 0 else f"{distance:.1e}"
        print(f"| {title} | `{encoder}` | {shown} | {cosine:.6f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
