"""What the gateway counts: requests, texts, refusals, seconds; never a text, a key or a person.

Labels are routes, statuses and codes of refusal, each from a list in this code, so that nothing
that a caller sends can become one. A registry of its own: two gateways may run in one process.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LATENCIES = 1000  # answers whose seconds the operator's page summarises


class Latency(NamedTuple):
    """Seconds in which half, and 95 of 100, of the last answers were given."""

    median: float
    slow: float


class Metrics:
    """Counters for `/metrics`, and the few figures of them that the operator's page shows."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)
        self.refusals: Tally[str] = Tally()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"capelet_{name}", text, labels, registry=self._registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"capelet_{name}", text, registry=self._registry)

        self._requests = counter("requests", "answers by route and status", "route", "status")
        self._refusals = counter("refusals", "requests that were refused, by code", "code")
        self._releases = counter("texts_released", "texts that were drawn and charged")
        self._repeats = counter("texts_remembered", "texts answered as they were stored")
        self._epsilon = counter("epsilon_charged", "ε charged, over all people")
        self._draws = counter("batches", "batches that the encoder was given")
        self._drawn_texts = counter("batch_texts", "texts in these batches")
        self._waiting = gauge("waiting_texts", "texts that wait for the encoder or the store")
        self._seconds = Histogram(
            "capelet_embedding_seconds",
            "seconds until embeddings were answered",
            buckets=_SECONDS,
            registry=self._registry,
        )

    def count_answer(self, route: str, status: int) -> None:
        self._requests.labels(route, str(status)).inc()

    def count_refusal(self, code: str) -> None:
        self._refusals.labels(code).inc()
        self.refusals[code] += 1

    def count_settlement(self, releases: int, repeats: int, epsilon: float) -> None:
        self._releases.inc(releases)
        self._repeats.inc(repeats)
        self._epsilon.inc(epsilon)

    def count_batch(self, texts: int) -> None:
        self._draws.inc()
        self._drawn_texts.inc(texts)

    def show_waiting(self, texts: int) -> None:
        self._waiting.set(texts)

    def time_answer(self, seconds: float) -> None:
        self._seconds.observe(seconds)
        self._latencies.append(seconds)

    def latency(self) -> Latency | None:
        """Of the last answers; None before the first."""
        seconds = sorted(self._latencies)
        if not seconds:
            return None
        return Latency(
            seconds[len(seconds) // 2], seconds[min(len(seconds) - 1, len(seconds) * 95 // 100)]
        )

    def export(self) -> bytes:
        return generate_latest(self._registry)
