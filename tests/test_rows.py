"""A row depends on itself alone, to the last bit: every member of every table, in any company.

ε is about one text because its vector is a function of that text. What a released row passes is
asked here alone, first, last, among 2, 7, 64 and 1,000, in another order, beside zeros and beside
rows of size 10⁴. The tests run again as on other processors (`.ci/run`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capelet.defences import METHODS, Settings, fit
from capelet.defences.fitting import Schedule
from capelet.encoders import ENCODERS, AutoEncoder, DualEncoder, load
from capelet.encoders.dual import SPECIAL, save_dual
from capelet.encoders.dual_networks import NETWORKS, build
from capelet.encoders.own import TunedEncoder
from capelet.encoders.transformer import TorchEngine
from capelet.interfaces import Encoder, Vectors
from capelet.mechanisms import MECHANISMS, Laplace, Projection, Rounding
from capelet.mechanisms.rounding import PRECISIONS
from capelet.mechanisms.sampling import NoiseStep
from capelet.mechanisms.vectors import l1_grid, l2_grid
from capelet.release import PrivateEncoder
from capelet.release.heads import Head
from capelet.release.maps import ACTIVATIONS, Layer, Map
from defences.conftest import planted_world
from encoders.conftest import build_tiny
from encoders.test_encoder_contract import MPNET_IS_INSTALLED

pytestmark = pytest.mark.numerical

RANDOM = np.random.default_rng(3)


def bits(vectors: Any) -> np.ndarray:
    array = np.ascontiguousarray(vectors)
    return array.view(f"u{array.dtype.itemsize}")


def companies(count: int, few: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Row numbers that go together, and which of them are looked at; −1 is a strange row."""
    some = RANDOM.permutation(count)[:few]
    for row in some:
        yield "alone", np.array([row]), np.array([0])
        yield "first", np.array([row, *np.delete(np.arange(min(count, 9)), 0)]), np.array([0])
        yield "last", np.array([*np.arange(min(count, 8)), row]), np.array([-1])
        for size in (2, 7):
            others = RANDOM.integers(0, count, size)
            others[size // 2] = row
            yield f"among {size}", others, np.array([size // 2])
    for size in (64, 1000):
        yield f"among {size}", RANDOM.integers(0, count, size), np.arange(size)
    yield "in another order", RANDOM.permutation(count), np.arange(count)
    strange = np.full(2 * count + 1, -1)
    strange[1::2] = np.arange(count)
    yield "beside strange rows", strange, np.arange(1, 2 * count, 2)


def assert_rows_alone(
    compute: Callable[[list[Any]], Any], rows: Sequence[Any], strange: Sequence[Any], few: int = 25
) -> None:
    """Fail unless `compute` gives each row the same bits in every company."""
    expected = bits(compute(list(rows)))
    for name, numbers, looked_at in companies(len(rows), few):
        items = [rows[i] if i >= 0 else strange[k % len(strange)] for k, i in enumerate(numbers)]
        actual = bits(compute(items))[looked_at]
        moved = (actual != expected[numbers[looked_at]]).any(axis=1)
        assert not moved.any(), f"{name}: {moved.sum()} of {len(moved)} rows moved"


# ---- vectors -------------------------------------------------------------------------------------


def rows_of(width: int, kind: str = "f4") -> tuple[np.ndarray, np.ndarray]:
    rows = RANDOM.normal(size=(300, width)).astype(kind)
    rows[0], rows[1, ::2], rows[2] = 0.0, 0.0, rows[2] * 1e-20
    strange = np.stack([np.zeros(width, kind), np.full(width, 1e4, kind), rows[5] * 1e4])
    return rows, strange


def assert_step_alone(step: Any, width: int, kind: str = "f4", few: int = 25) -> None:
    rows, strange = rows_of(width, kind)
    assert_rows_alone(lambda items: step(np.stack(items)), rows, strange, few)
    # Laid out by columns, or beginning anywhere in memory: the same numbers.
    expected = bits(step(rows))
    assert np.array_equal(bits(step(np.asfortranarray(rows))), expected)
    room = np.zeros(rows.size + 3, kind)
    for shift in range(3):
        moved = room[shift : shift + rows.size].reshape(rows.shape)
        moved[:] = rows
        assert np.array_equal(bits(step(moved)), expected), f"shifted by {shift}"


def layer(inside: int, outside: int, activation: str = "none") -> Layer:
    weight = RANDOM.normal(size=(outside, inside)).astype(np.float32) / 4
    return Layer(weight, RANDOM.normal(size=outside).astype(np.float32), activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("widths", [(384, 64), (33, 7), (50, 1), (2, 130), (768, 384)], ids=str)
def test_a_layer(activation: str, widths: tuple[int, int]) -> None:
    assert_step_alone(Map((layer(*widths, activation),)), widths[0], few=5)


def test_a_map_with_a_skip_and_one_that_begins_with_rows_of_length_one() -> None:
    skip = Map((layer(33, 50), layer(50, 20, "relu"), layer(20, 50)), skip=layer(50, 50))
    assert_step_alone(skip, 33)
    unit = Map((layer(384, 20, "tanh"), layer(20, 5, "softmax")), unit=True)
    assert_step_alone(unit, 384)


def test_a_head_and_one_of_one_hot_rows() -> None:
    head = Head.of("topic", ("a", "b", "c"), (layer(10, 200, "relu"), layer(200, 3)))
    assert_step_alone(head, 10)
    hot = np.eye(10, dtype=np.float32)[RANDOM.integers(0, 10, 3000)]
    expected = bits(head(np.eye(10)))
    assert np.array_equal(bits(head(hot)), expected[hot.argmax(axis=1)])


def test_a_plain_product_is_found_to_move_rows() -> None:
    """The control: what maps were before."""
    weight = layer(384, 64).weight
    with pytest.raises(AssertionError, match="rows moved"):
        for seed in range(20):
            rows = np.random.default_rng(seed).normal(size=(300, 384)).astype(np.float32)
            assert_rows_alone(lambda items: np.stack(items) @ weight.T, rows, rows[:1])


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("widths", [(384, 64), (33, 7), (5, 1)], ids=str)
def test_a_projection(widths: tuple[int, int], kind: str) -> None:
    width, dimension = widths
    rows, strange = rows_of(width, kind)
    step = Projection(dimension)
    assert_rows_alone(lambda items: step(np.stack(items)), rows, np.nan_to_num(strange), few=5)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_rounding(precision: str, kind: str) -> None:
    assert_step_alone(Rounding(precision), 33, kind)


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_what_noise_is_added_to(kind: str) -> None:
    """The noise itself is fresh; the rows on their grid are what ε is about."""
    assert_step_alone(lambda rows: l1_grid(rows, 20), 384, kind)
    for clip in (None, 1.0):
        assert_step_alone(lambda rows, clip=clip: l2_grid(rows, 20, clip), 33, kind)


def test_every_step_of_vectors_is_tested_here() -> None:
    """A new mechanism that adds no noise needs a line above."""
    quiet = {
        name
        for name, step in MECHANISMS.items()
        if not (isinstance(step, type) and issubclass(step, NoiseStep))
        and getattr(step, "consumes", "") == "vectors"
    }
    assert quiet == {"projection", "rounding"}


# ---- what defences learn -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def part() -> Any:
    whole = planted_world(300, 100, 10).part
    return replace(whole, texts=[WORDS[i % 7 :][: 3 + i % 5] for i in range(len(whole.vectors))])


WORDS = "the dog was good and red a cat is not very bad blue house"


@pytest.mark.parametrize(
    "name", [name for name, item in METHODS.items() if "texts" not in item.needs]
)
def test_what_a_method_learns(name: str, part: Any) -> None:
    epsilon = 8.0 if "epsilon" in METHODS[name].needs else None
    settings = Settings(epsilon=epsilon, schedule=Schedule(epochs=1, device="cpu"))
    defence = fit(name, part, settings)
    maps = [step for step in defence.steps if isinstance(step, Map)]
    for step in maps:
        assert_step_alone(step, step.width, few=5)
    noise = [step for step in defence.steps if step not in maps]
    assert all(isinstance(step, NoiseStep | Projection | Rounding) for step in noise)


# ---- encoders ------------------------------------------------------------------------------------

# Of many lengths, some of them several times, some once, and texts of no word.
TEXTS = [
    " ".join(["the dog was good and red", "a cat", "is not very bad !"][i % 3 :] * (1 + i % 5))
    for i in range(30)
]
TEXTS += ["blue", "", "a very bad cat, and not a red house !" * 3, "Ünïcödé – 東京, 🙂"]
STRANGE = ["", "the cat is red . " * 60, "a"]
CASES = ["minilm/torch", "minilm/onnx", "minilm/int8", "minilm:layers=2/onnx", "tiny/torch"]
CASES += ["tiny/onnx", "tiny/int8", "bare/torch", "bare/onnx", "tuned/torch", "tuned/onnx"]
CASES += ["wordllama/auto", "glove/auto", "file/auto", "e5/auto", "mpnet/torch"]
CASES += ["auto-encoder/auto", *(f"{name}/dual" for name in NETWORKS)]


def encoder_of(case: str, folder: Path) -> Encoder:
    name, backend = case.split("/")
    if name == "mpnet" and not MPNET_IS_INSTALLED:
        pytest.skip("the five packages of mpnet's weights (440 MB) are not installed")
    if name in ("tiny", "bare"):
        return load(str(build_tiny(folder, special=name == "tiny")), backend)
    if name == "tuned":
        return TunedEncoder(build_tiny(folder), backend)
    if name == "file":
        path = folder / "words.vec"
        lines = (f"{word} {RANDOM.normal()} {RANDOM.normal()}" for word in set(WORDS.split()))
        path.write_text("\n".join(lines), encoding="utf-8")
        return load(str(path), backend)
    if name == "auto-encoder":
        words = tuple(sorted(set(WORDS.split())))
        table = RANDOM.normal(size=(len(words), 33)).astype(np.float32)
        return AutoEncoder(name, words, table, RANDOM.normal(size=33).astype(np.float32))
    if backend == "dual":
        words = [*SPECIAL, *sorted(set(WORDS.split()))]
        torch.manual_seed(0)
        # An odd width of the LSTM: its last row took another path.
        network = build(name, len(words), 50 if name == "lstm" else 64, 2, 33).eval()
        save_dual(folder / "dual", network, words, 40, {})
        return DualEncoder(str(folder / "dual"))
    return load(name, backend)


def assert_encoder_alone(encoder: Encoder) -> None:
    slow = encoder.name in ("e5", "mpnet")
    texts = TEXTS[::3] if slow else TEXTS
    assert_rows_alone(encoder.encode, texts, STRANGE, few=2 if slow else 4)


@pytest.mark.parametrize("case", CASES)
def test_an_encoder(case: str, tmp_path: Path) -> None:
    assert_encoder_alone(encoder_of(case, tmp_path))


def test_every_encoder_is_tested_here() -> None:
    assert {*ENCODERS, *NETWORKS} <= {case.split("/")[0] for case in CASES}


def test_padding_is_found_to_move_rows() -> None:
    """The control: sentence-transformers as it is."""
    encoder = load("minilm", "torch")
    encoder.encode(["a"])
    engine = encoder._engine  # type: ignore[attr-defined]
    assert isinstance(engine, TorchEngine)
    with pytest.raises(AssertionError, match="rows moved"):
        assert_rows_alone(
            lambda texts: engine.model.encode(texts, show_progress_bar=False), TEXTS, STRANGE
        )


def test_a_machine_whose_kernels_mix_texts_sends_them_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    encoder = encoder_of("tiny/torch", tmp_path)
    encoder.encode(["a"])
    engine: Any = encoder._engine  # type: ignore[attr-defined]
    is_mixing, sizes = False, []

    def run(inputs: Sequence[Any]) -> Vectors:
        """Kernels in which the size of a batch moves the last bits, or does not."""
        sizes.append(len(inputs))
        sums = np.array([[item.rows["input_ids"].sum()] for item in inputs], dtype=np.float32)
        return np.repeat(sums, 32, axis=1) * np.float32(1 + is_mixing * len(inputs) * 1e-6)

    monkeypatch.setattr(engine, "_run", run)
    for is_mixing in (False, True):
        vars(engine).pop("batch_size", None)
        assert (engine.batch_size is None) is is_mixing
        assert engine.gathers_lengths is not is_mixing
    sizes.clear()
    engine.encode(["a dog", "a cat", "red"], lambda *_: None)
    assert sizes == [1, 1, 1]


# ---- the whole road ------------------------------------------------------------------------------


def test_a_private_encoder_whatever_the_size_of_its_calls(tmp_path: Path) -> None:
    """What a gateway's batches, the parts of a file and the workers of a cluster have in common."""
    learnt = Map((layer(32, 20, "relu"), layer(20, 5)))
    private = PrivateEncoder(encoder_of("tiny/torch", tmp_path), learnt, Projection(3))
    assert_rows_alone(lambda texts: private.release(texts).vectors, TEXTS, STRANGE)


def test_noise_is_found_to_move_rows() -> None:
    """The control of the last one: a mechanism has fresh noise in every call."""
    rows, strange = rows_of(33)
    private = PrivateEncoder(Laplace(8.0))
    with pytest.raises(AssertionError, match="rows moved"):
        assert_rows_alone(
            lambda items: private.release(np.stack(items)).vectors, rows, strange, few=1
        )
