"""What tests share: a cache of their own, and the real data sets where they are."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:
    # One core for each worker; a thread pool reads this when numpy or torch loads it, so not later.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from capelet.data.corpus import Corpus
from capelet.data.datasets import load
from capelet.errors import DataError
from capelet.numerics import one_thread
from postgres import Server, why_no_server


@pytest.fixture(scope="session")
def exported_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that were made ready to run, for all workers: an export takes longer than most tests.

    Two processes may export the same model at once; the first one wins, and neither sees a half.
    """
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "models"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, exported_models: Path) -> Iterator[Path]:
    """No test touches the user's cache, nor another worker's."""
    before = os.environ.get("CAPELET_CACHE")
    folder = tmp_path_factory.mktemp("cache")
    (folder / "models").symlink_to(exported_models)
    os.environ["CAPELET_CACHE"] = str(folder)
    yield folder
    if before is None:
        os.environ.pop("CAPELET_CACHE")
    else:
        os.environ["CAPELET_CACHE"] = before


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test reads or writes the user's keys and records of what trained."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPELET_STATE", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def single_thread() -> Iterator[None]:
    """As in an audit: small matrices are not worth sharing between threads."""
    # `tools/processors.py` asks again with two.
    with one_thread() if os.environ.get("TEST_THREADS", "1") == "1" else nullcontext():
        yield


@pytest.fixture
def usual_umask() -> Iterator[None]:
    """0022, as most people have it: files that others may read then are so on any machine."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def dataset() -> Callable[..., Corpus]:
    """A real data set, or a skip with the sentence that says where to get it."""

    def find(name: str, **options: str) -> Corpus:
        try:
            return load(name, **options)
        except DataError as missing:
            pytest.skip(str(missing))

    return find


@pytest.fixture(scope="session")
def planted() -> Corpus:
    """600 ready vectors: `open` is planted in them, `hidden` is not; one missing, one rare class.

    `open` moves a vector by one deviation along one direction, so the optimum is Φ(1) ≈ 0.84.
    """
    random = np.random.default_rng(7)
    rows = 600
    secret = random.integers(0, 2, rows)
    vectors = random.normal(size=(rows, 16)).astype(np.float32)
    vectors[:, 3] += 2.0 * secret
    vectors[:, 5] = 0.0  # a dead coordinate
    label = (vectors[:, 0] > 0).astype(int)
    hidden = random.integers(0, 3, rows)

    def column(values: object) -> np.ndarray:
        return np.array(list(values), dtype=object)  # type: ignore[call-overload]

    return Corpus(
        "planted",
        vectors=vectors,
        label_name="side",
        label=column(["left" if item else "right" for item in label]),
        private={
            "open": column(["yes" if item else "no" for item in secret]),
            "hidden": column([f"h{item}" for item in hidden]),
        },
    )


# ---- stores --------------------------------------------------------------------------------------

_DATABASES = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A running PostgreSQL, or a skip with a sentence."""
    reason = why_no_server()
    if reason:
        pytest.skip(reason)
    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.delete()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file for a store, which is not yet there."""
    return tmp_path / "ledger.db"


@pytest.fixture
def url(postgres: Server) -> str:
    """The URL of a new database."""
    return postgres.create(f"test_{next(_DATABASES)}")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Path | str:
    """Where a store may be and is not yet: a file, and a database."""
    return request.getfixturevalue({"sqlite": "path", "postgres": "url"}[request.param])
