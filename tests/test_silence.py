"""Nothing phones home: switches before imports, every version looked at, commands observed."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from capelet import silence
from capelet.silence import CHECKS, Check, switch_off, warn_if_late
from documentation import DOCS, ROOT, rows


@pytest.fixture(scope="module")
def outside() -> ModuleType:
    spec = importlib.util.spec_from_file_location("outside", ROOT / "tools/outside.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # A dataclass looks its module up by name.
    sys.modules["outside"] = module
    spec.loader.exec_module(module)
    return module


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


# ---- every dependency, at its version ------------------------------------------------------------


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").split()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines)}


def test_every_pinned_version_was_looked_at() -> None:
    """A new version may report what the last one did not: look, then write it into `CHECKS`."""
    others = {
        name: (check.version, pins()[normal(name)])
        for name, check in CHECKS.items()
        if normal(name) in pins() and check.version != pins()[normal(name)]
    }
    assert others == {}


def test_every_dependency_was_looked_at() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    names = {normal(re.split(r"[\[<>=~! ]", item)[0]) for item in wanted}
    assert names - {normal(name) for name in CHECKS} == set()


# Speak of telemetry, and do nothing by themselves: a lexer's word, somebody's settings, a hash.
HARMLESS = {"pygments", "starlette", "psycopg-binary", "opentelemetry-api", "langsmith"}


def test_every_installed_package_that_speaks_of_telemetry_was_looked_at(
    outside: ModuleType,
) -> None:
    owners = packages_distributions()
    pinned, known = pins(), {normal(name) for name in CHECKS} | HARMLESS
    speaking = {normal(owner) for folder in outside.mentions() for owner in owners.get(folder, [])}
    # The control: the one that made the trouble is found by this very search.
    assert {"ray", "huggingface-hub"} <= speaking
    assert (speaking & set(pinned)) - known == set()


def test_the_page_of_dependencies_shows_the_table(outside: ModuleType) -> None:
    page = (DOCS / "dependencies.md").read_text("utf-8")
    assert outside.checks_table() in page, "paste what `tools/outside.py --checks` prints"
    assert len(rows(outside.checks_table())) == len(CHECKS)


# ---- switches ------------------------------------------------------------------------------------


def test_every_switch_is_set_by_importing_the_package_and_nothing_heavy_is_loaded() -> None:
    code = (
        "import os, sys, capelet; from capelet.silence import CHECKS;"
        "print(all(os.environ[name] == value for check in CHECKS.values()"
        " for name, value in check.switches.items()), 'onnxruntime' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]


def test_what_a_user_has_set_stays_on_or_off() -> None:
    chosen = {"ORT_TELEMETRY_DISABLED": "0", "HF_HUB_DISABLE_TELEMETRY": "yes"}
    switch_off(chosen)
    assert chosen["ORT_TELEMETRY_DISABLED"] == "0" and "ORT_DISABLE_TELEMETRY" not in chosen
    assert chosen["HF_HUB_DISABLE_TELEMETRY"] == "yes"
    # The control: of whom nothing was said, the switch is set.
    assert chosen["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.fixture
def chatty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, str]], None]]:
    """A package that was imported before its switch was set."""
    check = Check("1", "a postcard", "source", {"CHATTY": "0"}, "chatty")
    monkeypatch.setattr(silence, "CHECKS", {"chatty": check})
    monkeypatch.setattr(silence, "_late", set())
    monkeypatch.setitem(sys.modules, "chatty", ModuleType("chatty"))
    return switch_off


def test_a_package_that_came_first_is_told_of_once_where_it_is_used(chatty: Any) -> None:
    chatty({})
    with pytest.warns(UserWarning, match=r"chatty was imported before capelet.*CHATTY=0"):
        warn_if_late("chatty")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_late("chatty")


@pytest.mark.parametrize("own", ["0", "1"])
def test_whoever_decided_is_told_nothing(chatty: Any, own: str) -> None:
    chatty({"CHATTY": own})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_late("chatty")


def test_every_name_that_is_asked_about_is_in_the_table() -> None:
    """Else the question would never be answered."""
    source = Path(silence.__file__).parent
    calls = [
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'warn_if_late\("([^"]+)"\)', path.read_text("utf-8"))
    ]
    assert "onnxruntime" in calls
    assert all(CHECKS[name].module for name in calls)


def test_torch_has_its_scratch_in_a_folder_that_goes(tmp_path: Path) -> None:
    code = (
        "import os; from capelet.silence import give_torch_a_folder as give;"
        "give(); print(os.path.isdir(os.environ['TORCHINDUCTOR_CACHE_DIR']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True" and not list(tmp_path.iterdir())


# ---- from outside --------------------------------------------------------------------------------


@pytest.fixture
def observed(outside: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`watch`, in folders of one's own; a skip where this machine lets nobody look."""
    reason = outside.why_not()
    if reason:
        pytest.skip(f"{reason}; on Debian: apt-get install strace")
    places = outside.Places(tmp_path_factory.mktemp("o"))
    places.make()

    def watch(*command: str, **more: str) -> Any:
        return outside.watch([sys.executable, *command], places, more)

    watch.root = places.root  # type: ignore[attr-defined]
    return watch


PLANTED = """
import os, pathlib, socket, tempfile
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
    end.connect(("192.0.2.1", 53))
pathlib.Path("~/diary").expanduser().write_text("here")
pathlib.Path(tempfile.gettempdir(), "left").touch()
pathlib.Path("mine").touch()
"""


def test_a_planted_call_home_is_seen(observed: Any) -> None:
    """The control of the next one; what is written where it may be is no finding."""
    seen = observed("-c", PLANTED)
    assert "AF_INET connect 192.0.2.1:53" in seen.sockets
    assert seen.files == (str(observed.root / "home/diary"),)
    assert seen.left == ("left",)


def test_a_command_that_encodes_says_nothing_to_anybody(observed: Any, outside: ModuleType) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
    work = observed.root / "work"
    (work / "r.toml").write_text(outside.RECIPE.format(encoder="minilm"), "utf-8")
    (work / "texts.csv").write_text("body\n" + "a text\n" * 5, "utf-8")
    words = ["encode", "texts.csv", "out.parquet", "--text", "body", "--recipe", "r.toml"]
    seen = observed("-c", outside.MAIN, *words)
    assert seen.code == 0 and seen.is_silent, seen
    # The control: whoever wants the telemetry has it, and it is seen.
    loud = observed("-c", outside.MAIN, *words, "--overwrite", ORT_DISABLE_TELEMETRY="0")
    assert loud.code == 0 and any("deviceid" in name for name in loud.files), loud


def test_own_addresses_and_loopback_are_told_from_the_world(outside: ModuleType) -> None:
    assert outside.in_words(("AF_INET connect 192.0.2.1:53",)) == "**AF_INET connect 192.0.2.1:53**"
    assert outside.in_words(("AF_INET6 bind ::1:80", "AF_INET socket")) == "bind on loopback (1)"
    assert outside.in_words(("AF_INET bind 0.0.0.0:80",)) == "bind to every interface (1)"
    assert outside.in_words(("AF_INET socket",)) == "AF_INET socket"
    assert outside.in_words(()) == "none"
