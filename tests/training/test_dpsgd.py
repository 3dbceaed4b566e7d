"""DP-SGD: norms and every clipped sum equal a naive loop, and the noise is what is stated."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from capelet.errors import CapeletError, MissingExtra
from capelet.language.methods import Dpsgd
from capelet.language.model import Lstm, Network, build, losses, tracer_of
from capelet.language.schedule import Training
from capelet.language.vocabulary import PAD, Samples
from capelet.mechanisms.sampling import Stream
from capelet.training.dpsgd import Clipping, Noise, SeededNoise, SystemNoise, add_noise
from capelet.training.dpsgd import clipped_sum as sum_clipped


def clipped_sum(network: Any, tokens: torch.Tensor, clip: float, rows: int = 0) -> torch.Tensor:
    """With what a language model hands in."""
    return sum_clipped(network, tokens, Clipping(clip, PAD, tracer_of(network), rows))


def noise_of(seed: int | None) -> Noise:
    return SystemNoise(Stream()) if seed is None else SeededNoise(seed)


def rows_of_words(rows: int = 9, length: int = 7, words: int = 40, seed: int = 0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    tokens = random.integers(4, words, size=(rows, length + 2))
    tokens[:, 0] = 2
    for row, kept in enumerate(random.integers(1, length + 1, size=rows)):
        tokens[row, kept + 1] = 3
        tokens[row, kept + 2 :] = PAD
    tokens[0, 1:4] = 7  # the same word thrice: its row of the table gets three gradients
    return torch.from_numpy(tokens)


def naive(network: Network, tokens: torch.Tensor, clip: float) -> tuple[list[float], list]:
    """One backward pass per sample, by autograd and torch's own LSTM."""
    norms, total = [], [torch.zeros_like(weight) for weight in network.parameters()]
    for row in tokens:
        network.zero_grad()
        count = (row[1:] != PAD).sum()
        (losses(network, row[None]).sum() / count).backward()
        grads = [weight.grad.clone() for weight in network.parameters()]
        norm = torch.cat([grad.flatten() for grad in grads]).norm()
        norms.append(float(norm))
        for place, grad in zip(total, grads, strict=True):
            place += grad * min(1.0, clip / float(norm))
    return norms, total


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
@pytest.mark.parametrize("chunk", [256, 4])
def test_norms_and_every_clipped_sum_equal_a_naive_loop(kind: str, chunk: int) -> None:
    network = build(kind, words=40, width=24, layers=2, length=7, seed=1)
    tokens = rows_of_words()
    with torch.no_grad():
        network.bias.normal_(std=0.1)
    norms, _ = naive(network, tokens, 1.0)
    clip = float(np.median(norms))
    norms, total = naive(network, tokens, clip)
    found = clipped_sum(network, tokens, clip, rows=chunk)
    assert np.allclose(found.numpy(), norms, rtol=1e-5)
    for (name, weight), wanted in zip(network.named_parameters(), total, strict=True):
        assert weight.grad is not None
        scale = wanted.abs().max()
        assert scale > 0, name
        assert (weight.grad - wanted).abs().max() <= 1e-5 * scale, name
        assert weight.requires_grad


# ---- units of several samples --------------------------------------------------------------------


def authors_of_words(texts: int = 4) -> torch.Tensor:
    """Three authors with four, two and one texts; what is missing is padding."""
    tokens = rows_of_words(rows=12).view(3, texts, -1).clone()
    tokens[1, 2:] = PAD
    tokens[2, 1:] = PAD
    tokens[0, 1] = tokens[0, 0]  # one text twice: its gradient counts twice
    return tokens


def naive_units(network: Any, tokens: torch.Tensor, clip: float) -> tuple[list[float], list]:
    """One backward pass per text, added up for each author, and clipped as one."""
    norms, total = [], [torch.zeros_like(weight) for weight in network.parameters()]
    for author in tokens:
        network.zero_grad()
        for row in author:
            count = (row[1:] != PAD).sum()
            if count:
                (losses(network, row[None]).sum() / count).backward()
        grads = [weight.grad.clone() for weight in network.parameters()]
        norms.append(float(torch.cat([grad.flatten() for grad in grads]).norm()))
        for place, grad in zip(total, grads, strict=True):
            place += grad * min(1.0, clip / norms[-1])
    return norms, total


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
@pytest.mark.parametrize("chunk", [256, 4])
def test_an_author_s_texts_are_clipped_as_one(kind: str, chunk: int) -> None:
    network = build(kind, words=40, width=24, layers=2, length=7, seed=1).double()
    with torch.no_grad():
        network.bias.normal_(std=0.1)
    tokens = authors_of_words()
    clip = float(np.median(naive_units(network, tokens, 1.0)[0]))
    norms, total = naive_units(network, tokens, clip)
    found = clipped_sum(network, tokens, clip, rows=chunk)
    assert np.allclose(found.numpy(), norms, rtol=1e-6)
    for (name, weight), wanted in zip(network.named_parameters(), total, strict=True):
        assert weight.grad is not None and wanted.any(), name
        assert (weight.grad - wanted).abs().max() <= 1e-6 * wanted.abs().max(), name
    # The control: norms of single texts, added or not, are not the norm of the sum.
    single = clipped_sum(network, tokens.flatten(0, 1), clip).view(3, 4)
    assert not np.allclose(single.sum(1).numpy(), norms, rtol=1e-3)
    assert not np.allclose(single.square().sum(1).sqrt().numpy(), norms, rtol=1e-3)


def test_one_author_moves_the_sum_by_at_most_the_clip() -> None:
    network = build("lstm", words=40, width=24, layers=2, length=7, seed=1)
    tokens = authors_of_words()
    clipped_sum(network, tokens, 0.1)
    with_all = [weight.grad.clone() for weight in network.parameters()]
    for left_out in range(3):
        clipped_sum(network, tokens[torch.arange(3) != left_out], 0.1)
        apart = [a - weight.grad for a, weight in zip(with_all, network.parameters(), strict=True)]
        assert torch.cat([part.flatten() for part in apart]).norm() <= 0.1 * (1 + 1e-4)
    # The control: text by text, one author moves it further.
    texts = tokens.flatten(0, 1)
    clipped_sum(network, texts, 0.1)
    with_all = [weight.grad.clone() for weight in network.parameters()]
    clipped_sum(network, texts[4:], 0.1)
    apart = [a - weight.grad for a, weight in zip(with_all, network.parameters(), strict=True)]
    assert torch.cat([part.flatten() for part in apart]).norm() > 0.2


def test_an_author_whose_gradient_overflows_counts_as_zero() -> None:
    network = build("lstm", words=40, width=24, layers=2, length=7, seed=1)
    tokens = authors_of_words()
    tokens[tokens == 35] = 34
    tokens[1, 1, 1] = 35
    with torch.no_grad():
        network.embedding.weight[35] = 3e38
        network.bias[35] = -3e38
    clipped_sum(network, tokens[[0, 2]], 1.0)
    sums = [weight.grad.clone() for weight in network.parameters()]
    assert clipped_sum(network, tokens, 1.0).isfinite().tolist() == [True, False, True]
    for weight, sum_ in zip(network.parameters(), sums, strict=True):
        assert torch.allclose(weight.grad, sum_, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_opacus_clips_an_author_s_texts_as_one_too() -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    torch.manual_seed(1)
    network, tokens = Gated(), authors_of_words()
    norms, total = naive_units(network, tokens, 0.5)
    found = clipped_sum(network, tokens, 0.5, rows=4)
    assert np.allclose(found.detach().numpy(), norms, rtol=1e-5)
    for weight, wanted in zip(network.parameters(), total, strict=True):
        assert (weight.grad - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_the_cross_term_of_the_tied_table_matters() -> None:
    """Without it the norms would be wrong by more than the test above allows."""
    network = build("lstm", words=40, width=24, layers=1, length=7, seed=1)
    tokens = rows_of_words()
    norms, _ = naive(network, tokens, 1.0)
    apart = []
    for row in tokens:
        network.zero_grad()
        count = (row[1:] != PAD).sum()
        table = network.embedding.weight
        copy = table.detach().clone().requires_grad_()
        hidden = network.hidden(row[None, :-1])
        scores = hidden @ copy.T + network.bias
        loss = torch.nn.functional.cross_entropy(
            scores[0], row[1:], ignore_index=PAD, reduction="sum"
        )
        (loss / count).backward()
        grads = [weight.grad.flatten() for weight in network.parameters()]
        apart.append(float(torch.cat([*grads, copy.grad.flatten()]).norm()))
    assert max(abs(a / b - 1) for a, b in zip(apart, norms, strict=True)) > 1e-3


def test_a_gradient_that_overflows_counts_as_zero() -> None:
    """No clipping bounds infinity: one text could turn every weight into NaN, for all to see."""
    network = build("lstm", words=40, width=24, layers=2, length=7, seed=1)
    tokens = rows_of_words(words=30)
    tokens[3, 1] = 35
    with torch.no_grad():  # a word whose vector overflows, and that is never predicted
        network.embedding.weight[35] = 3e38
        network.bias[35] = -3e38
    others = torch.arange(len(tokens)) != 3
    wanted = clipped_sum(network, tokens[others], 1.0)
    sums = [weight.grad.clone() for weight in network.parameters()]
    norms = clipped_sum(network, tokens, 1.0)
    assert not norms[3].isfinite()
    assert torch.allclose(norms[others], wanted)
    for weight, sum_ in zip(network.parameters(), sums, strict=True):
        assert torch.allclose(weight.grad, sum_, atol=1e-6)
    clipped_sum(network, tokens[3:4], 1.0)
    assert all(not weight.grad.any() for weight in network.parameters())


def test_no_sample_gives_zeros_and_still_noise() -> None:
    network = build("lstm", words=40, width=24, layers=1, length=7)
    norms = clipped_sum(network, rows_of_words()[:0], 1.0)
    assert len(norms) == 0
    assert all(not weight.grad.any() for weight in network.parameters())
    source = SeededNoise(3)
    source.begin_step(0, torch.device("cpu"))
    add_noise(network, 1.0, 10.0, source)
    assert all(weight.grad.any() for weight in network.parameters())


@pytest.mark.parametrize("seed", [None, 5])
def test_the_noise_on_each_weight_has_the_stated_variance(seed: int | None) -> None:
    network = build("lstm", words=300, width=32, layers=2, length=7)
    tokens = rows_of_words(rows=2)
    source = noise_of(seed)
    source.begin_step(0, torch.device("cpu"))
    clipped_sum(network, tokens, 1.0)
    before = [weight.grad.clone() for weight in network.parameters()]
    sigma, clip, expected = 1.7, 0.5, 8.0
    add_noise(network, sigma * clip, expected, source)
    for weight, sum_ in zip(network.parameters(), before, strict=True):
        noise = (weight.grad - sum_ / expected).flatten().double()
        deviation = sigma * clip / expected
        count = noise.numel()
        assert abs(noise.std().item() / deviation - 1) < 5 / np.sqrt(2 * count)
        assert abs(noise.mean().item()) < 5 * deviation / np.sqrt(count)


def test_system_noise_is_normal_and_never_repeats() -> None:
    from scipy.stats import kstest

    first = SystemNoise(Stream()).normal((20_001,), torch.device("cpu")).numpy()
    second = SystemNoise(Stream()).normal((20_001,), torch.device("cpu")).numpy()
    assert kstest(first, "norm").pvalue > 1e-4
    assert not np.array_equal(first, second)
    assert abs(np.corrcoef(first[:10_000], first[10_001:])[0, 1]) < 0.05


def test_the_tail_of_system_noise_ends_beyond_what_is_ever_drawn() -> None:
    """Where noise ends, a sum that goes further gives its text away; P(|N| > 8.5) < 2·10⁻¹⁷."""

    class Zeros:
        def words(self, kind: type, *shape: int) -> np.ndarray:
            return np.zeros(shape, dtype=kind)

    source = SystemNoise(Zeros())  # type: ignore[arg-type]
    assert float(source.normal((1,), torch.device("cpu")).abs()) > 8.5


@pytest.mark.parametrize("seed", [None, 5])
def test_poisson_samples_have_their_rate(seed: int | None) -> None:
    source = noise_of(seed)
    sizes = []
    for step in range(200):
        source.begin_step(step, torch.device("cpu"))
        sizes.append(len(source.poisson(1000, 0.1)))
    assert abs(np.mean(sizes) - 100) < 5 * np.sqrt(90 / 200)
    assert 0.6 * 90 < np.var(sizes) < 1.5 * 90


@pytest.mark.filterwarnings("ignore")
def test_opacus_finds_the_same_norms() -> None:
    """The reference of the field, on its own LSTM with our weights and the same tied table."""
    opacus = pytest.importorskip("opacus", reason="opacus is not installed")
    from opacus.layers import DPLSTM

    ours = build("lstm", words=40, width=24, layers=2, length=7, seed=1)
    tokens = rows_of_words()

    class Theirs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(40, 24)
            self.lstm = DPLSTM(24, 24, num_layers=2, batch_first=True)
            self.out = nn.Linear(24, 40)
            self.out.weight = self.embedding.weight

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.out(self.lstm(self.embedding(rows))[0])

    theirs = Theirs()
    theirs.lstm.load_state_dict(ours.lstm.state_dict())
    theirs.embedding.load_state_dict(ours.embedding.state_dict())
    theirs.out.bias.data.copy_(ours.bias.data)
    wrapped = opacus.GradSampleModule(theirs, loss_reduction="sum", strict=False)
    scores = wrapped(tokens[:, :-1])
    losses_ = nn.functional.cross_entropy(
        scores.transpose(1, 2), tokens[:, 1:], ignore_index=PAD, reduction="none"
    )
    (losses_.sum(1) / (tokens[:, 1:] != PAD).sum(1)).sum().backward()
    squares = sum(weight.grad_sample.flatten(1).square().sum(1) for weight in wrapped.parameters())
    assert np.allclose(
        clipped_sum(ours, tokens, 1.0).numpy(), squares.sqrt().detach().numpy(), rtol=1e-5
    )


# ---- networks of one's own: Opacus takes over, exactly, or says why it cannot --------------------


class Gated(nn.Module):
    """A tied network whose states come from a convolution with a gate: no layer of ours."""

    kind = "gated"

    def __init__(self, words: int = 40, width: int = 16) -> None:
        super().__init__()
        self.sizes = {"words": words, "width": width, "layers": 1, "length": 7}
        self.embedding = nn.Embedding(words, width)
        self.mix = nn.Conv1d(width, 2 * width, 3)
        self.bias = nn.Parameter(torch.zeros(words))

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        before = nn.functional.pad(self.embedding(tokens).transpose(1, 2), (2, 0))
        return nn.functional.glu(self.mix(before), dim=1).transpose(1, 2)

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(hidden, self.embedding.weight, self.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.scores(self.hidden(tokens))


class Recurrent(Gated):
    """The same with Opacus's recurrent layer and an output of its own: watched layer by layer."""

    def __init__(self, words: int = 40, width: int = 16) -> None:
        super().__init__(words, width)
        from opacus.layers import DPGRU

        del self.mix, self.bias
        self.gru = DPGRU(width, width, batch_first=True)
        self.out = nn.Linear(width, words)

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.gru(self.embedding(tokens))[0]

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.out(hidden)


class Missed(Recurrent):
    """Its output goes past the layer that holds it, so that nobody sees it being used."""

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(hidden, self.embedding.weight, self.out.bias)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Gated, Recurrent])
@pytest.mark.parametrize("chunk", [256, 4])
def test_opacus_takes_over_where_a_layer_is_unknown(kind: Any, chunk: int) -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    torch.manual_seed(1)
    network, tokens = kind(), rows_of_words()
    assert tracer_of(network) is None
    norms, _ = naive(network, tokens, 1.0)
    clip = float(np.median(norms))
    norms, total = naive(network, tokens, clip)
    found = clipped_sum(network, tokens, clip, rows=chunk)
    assert np.allclose(found.detach().numpy(), norms, rtol=1e-5)
    for (name, weight), wanted in zip(network.named_parameters(), total, strict=True):
        assert weight.grad is not None and wanted.any(), name
        assert (weight.grad - wanted).abs().max() <= 1e-5 * wanted.abs().max(), name
        assert not hasattr(weight, "grad_sample")
    again = clipped_sum(network, tokens, clip)
    assert torch.allclose(again, found)


@pytest.mark.filterwarnings("ignore")
def test_a_weight_that_is_used_out_of_sight_is_refused() -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    with pytest.raises(CapeletError, match="does not see every use of"):
        clipped_sum(Missed(), rows_of_words(), 1.0)


@pytest.mark.filterwarnings("ignore")
def test_a_layer_that_mixes_samples_is_refused() -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    network = Gated()
    network.norm = nn.BatchNorm1d(16)
    with pytest.raises(CapeletError, match="Opacus cannot make gradients per sample of 'Gated'"):
        clipped_sum(network, rows_of_words(), 1.0)


def test_without_opacus_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(MissingExtra, match=r"capelet\[opacus\]"):
        clipped_sum(Gated(), rows_of_words(), 1.0)


def test_our_own_networks_never_need_it() -> None:
    assert tracer_of(build("lstm", words=40, width=24, layers=2, length=7)) is not None
    transformer = build("transformer", words=40, width=24, layers=2, length=7)
    assert tracer_of(transformer) is not None
    transformer.blocks[0].extra = nn.Conv1d(2, 2, 1)
    assert tracer_of(transformer) is None
    other = Lstm(40, 8)
    other.lstm = nn.LSTM(8, 8, 1, batch_first=True, bias=False)
    assert tracer_of(other) is None


@pytest.mark.filterwarnings("ignore")
def test_a_network_of_ones_own_trains_with_dpsgd() -> None:
    pytest.importorskip("opacus", reason="opacus is not installed")
    torch.manual_seed(1)
    network, tokens = Gated(), rows_of_words(rows=60)
    samples = Samples(tokens.numpy(), np.arange(60) % 6, tuple("abcdef"))
    before = network.mix.weight.detach().clone()
    plan = Training(Dpsgd(0.5, seed_noise=1), epochs=2, batch=20, device="cpu")
    done = plan.fit(network, samples)  # type: ignore[arg-type]
    assert done.steps == 6
    assert not torch.equal(before, network.mix.weight)
