"""The pages say what is so: the tutorial runs, and every list in them is the code's own list."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest

import capelet
from capelet.attacks.adaptive import HOLDS
from capelet.attacks.attribute import COMMITTEE, FAMILIES
from capelet.attacks.outcomes import TABLE
from capelet.cli.catalogue import TABLES
from capelet.cli.commands import COMMANDS as COMMAND_TABLE
from capelet.cli.doors import EMPTY, Option, options_of
from capelet.data.datasets import DATASETS
from capelet.data.splits import SPLITS
from capelet.errors import MissingExtra
from capelet.findings import SCHEMA, Finding, Findings
from capelet.findings.metrics import METRICS
from documentation import (
    COMMAND_LINE,
    DESCRIPTIONS,
    DOCS,
    ROOT,
    SCHEMA_PAGE,
    first_codes,
    option_rows,
    rows,
    sections,
    undocumented,
)

TUTORIAL = DOCS / "tutorials" / "first-audit.md"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
PYTHON_PAGES = [page for page in PAGES if "```python" in page.read_text("utf-8")]

# Whole folders of one machine; `~` and relative paths are everyone's.
MACHINE_PATH = re.compile(
    r"(?<![\w~.:/-])/(?:home|root|work|tmp|mnt|srv|opt|usr|var|Users)/|[A-Z]:\\"
)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[tuple[str, str]]:
    """The fenced blocks of a page, in order, as (language, content); indented ones too."""
    found = re.findall(
        r"^([ ]*)```(\w*)\n(.*?)^\1```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    return [(language, inspect.cleandoc(content)) for _, language, content in found]


def prose(page: Path) -> str:
    return re.sub(
        r"^[ ]*```.*?^[ ]*```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )


# ---------------------------------------------------------------------------------------------
# The tutorial runs


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory, exported_models: Path) -> Path:
    """The folder in which all blocks of the tutorial were run, in order."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "cache").mkdir()
    (folder / "cache/models").symlink_to(exported_models)
    here = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "CAPELET_CACHE": str(folder / "cache"),
        "OMP_WAIT_POLICY": "passive",
        "PYTHONWARNINGS": "error",
    }
    runners = {"python": [sys.executable, "-c"], "bash": ["bash", "-euo", "pipefail", "-c"]}
    for language, code in blocks(TUTORIAL):
        if language in runners:
            done = subprocess.run(
                [*runners[language], code],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    return folder


def test_the_tutorial_runs(tutorial: Path) -> None:
    assert (tutorial / "runs/first/report.html").is_file()
    assert (tutorial / "runs/compared/comparison.html").is_file()
    assert not list((tutorial / "cache").rglob("*.sqlite"))


def test_the_tutorial_finds_what_it_says(tutorial: Path) -> None:
    said = {
        verdict.target: verdict
        for verdict in capelet.verdicts(Findings.load(tutorial / "runs/first"))
    }
    printed = next(content for language, content in blocks(TUTORIAL) if language == "text")
    for target, level, percent in (("gender", "strong", 71), ("country", "strong", 50)):
        assert f"[{level} leak] {target}: {percent} %" in printed
        verdict = said[target]
        assert verdict.level == level
        assert verdict.value is not None and abs(100 * verdict.value - percent) < 4


def test_provenance_is_described(tutorial: Path) -> None:
    described = sections(SCHEMA_PAGE, 2)
    run = Findings.load(tutorial / "runs/first")
    assert set(first_codes(described["Provenance"])) == set(run.provenance)
    assert {f"{item}.json" for item in run.artefacts} == set(first_codes(described["Artefacts"]))
    assert {row.kind for row in run} <= set(first_codes(described["Kinds"]))
    assert {row.metric for row in run} <= set(first_codes(described["Metrics"]))


# ---------------------------------------------------------------------------------------------
# The command line


COMMANDS = {f"capelet {path}": list(options_of(made)) for path, made in COMMAND_TABLE.items()}
# What stands before any command, or at each of them.
COMMANDS["capelet"] = [Option("version", bool, default=False), Option("config", str, default=None)]


def options(command: list[Option]) -> dict[str, Option]:
    """The options by their words; of a switch that is on by itself the word that turns it off."""
    return {
        f"--no-{item.flag[2:]}" if item.default is True else item.flag: item
        for item in command
        if not item.has_place
    }


def shown_default(option: Option) -> str:
    if option.default in (EMPTY, None, ()) or isinstance(option.default, bool):
        return ""
    return ",".join(option.default) if isinstance(option.default, tuple) else str(option.default)


def test_every_command_is_described_and_no_other() -> None:
    assert set(sections(COMMAND_LINE, 2)) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_described_and_no_other(command: str) -> None:
    described = option_rows(command)
    real = options(COMMANDS[command])
    assert {word for word in described if word.startswith("--")} == set(real)
    for word, option in real.items():
        assert described[word][1].strip("`") == shown_default(option), word


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_is_described_and_no_other(command: str) -> None:
    words = first_codes(sections(COMMAND_LINE, 2)[command])
    real = [item.name for item in COMMANDS[command] if item.has_place]
    assert [word.lower() for word in words if not word.startswith("-")] == real


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_examples_name_real_commands_and_options(page: Path) -> None:
    for language, code in blocks(page):
        for line in code.splitlines() if language == "bash" else ():
            words = shlex.split(line)
            if words and words[0] == "capelet":
                two = " ".join(words[:3])
                command = COMMANDS[two if two in COMMANDS else " ".join(words[:2])]
                used = {word.split("=")[0] for word in words if word.startswith("--")}
                assert used <= {*options(command), "--config"}, line


# ---------------------------------------------------------------------------------------------
# Python


def test_every_public_name_is_described_and_no_other() -> None:
    described = sections(DOCS / "reference/python.md", 3)
    assert set(described) == {f"capelet.{public}" for public in capelet.__all__}


@pytest.mark.parametrize("public", capelet.__all__)
def test_signatures_are_the_real_ones(public: str) -> None:
    thing = getattr(capelet, public)
    if isinstance(thing, type) and issubclass(thing, Exception):
        return
    written = sections(DOCS / "reference/python.md", 3)[f"capelet.{public}"].strip().splitlines()[0]
    found = re.match(rf"`{public}\((.*?)\)(?: → .+)?`$", written)
    assert found, written
    named = [
        part.split("=")[0].strip().lstrip("*")
        for part in re.split(r",(?![^(\[{]*[)\]}])", found[1])
        if part.strip() != "*"
    ]
    assert named == list(inspect.signature(thing).parameters)


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name)
def test_python_examples_use_real_names(page: Path) -> None:
    for language, code in blocks(page):
        if language == "python":
            assert not unknown_names(code)


def unknown_names(code: str) -> list[str]:
    """What the code takes from `capelet` that is neither a public name nor in the room it names."""
    unknown, modules = [], set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "capelet":
            modules.add(node.module)
            names = [alias.name for alias in node.names]
            unknown += [item for item in names if not is_there(str(node.module), item)]
    rooms = {str(module).split(".")[1] for module in modules if "." in str(module)}
    used = re.findall(r"\bcapelet\.([A-Za-z]\w*)", code)
    return unknown + [word for word in used if word not in {*capelet.__all__, *rooms}]


def is_there(module: str, item: str) -> bool:
    """Whether a module has a member, or a module, of this name."""
    try:
        package = importlib.import_module(module)
    except MissingExtra:  # an adapter of a framework that is not installed: by its code
        spec = find_spec(module)
        assert spec is not None and spec.origin is not None
        tree = ast.parse(Path(spec.origin).read_text("utf-8"))
        return item in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    if hasattr(package, item):
        return True
    return hasattr(package, "__path__") and find_spec(f"{module}.{item}") is not None


def test_the_check_of_python_examples_can_fail() -> None:
    assert unknown_names("import capelet\ncapelet.adit()") == ["adit"]
    assert unknown_names("from capelet.release.batch import encod") == ["encod"]
    assert not unknown_names("from capelet.release.batch import encode\nencode()")
    chroma = "from capelet.integrations.chroma import "
    assert unknown_names(chroma + "PrivateFunction") == ["PrivateFunction"]
    assert not unknown_names(chroma + "PrivateEmbeddingFunction")


def test_fields_of_a_finding() -> None:
    described = sections(SCHEMA_PAGE, 2)
    assert first_codes(described["A finding"]) == [item.name for item in fields(Finding)]
    assert set(METRICS) <= set(first_codes(described["Metrics"]))
    assert f'"schema": {SCHEMA}' in (SCHEMA_PAGE).read_text("utf-8")


# ---------------------------------------------------------------------------------------------
# Cards and lists


@pytest.mark.parametrize("kind", TABLES)
def test_every_member_of_every_table_is_described(kind: str) -> None:
    assert not undocumented(kind)


def test_no_page_is_named_for_a_table_that_is_gone() -> None:
    assert set(DESCRIPTIONS) == set(TABLES)


def test_cards_of_attackers_and_splits() -> None:
    others = {"Sources", "strongest", "Adaptive attackers", "Against every release"}
    assert set(sections(DOCS / "cards/attackers.md", 2)) - others == {*FAMILIES, COMMITTEE, TABLE}
    assert set(sections(DOCS / "cards/attackers.md", 3)) == set(HOLDS)
    splits = set(sections(DOCS / "cards/splits.md", 2)) - {"Sources", "Identical and near"}
    assert splits == {*SPLITS, "column:NAME"}


def test_card_of_data_sets() -> None:
    listed = {
        row[0].strip("`"): row for row in rows((DOCS / "cards/datasets.md").read_text("utf-8"))
    }
    assert list(listed) == list(DATASETS)
    for known, about in DATASETS.items():
        columns = [f"`{about.label}`" if about.label else "–"]
        columns.append(", ".join(f"`{column}`" for column in about.private) or "–")
        columns.append(f"`{about.author}`" if about.author else "–")
        terms = [about.source, about.licence, about.citation]
        assert listed[known] == [f"`{known}`", about.title, *columns, *terms]


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    described = sections(DOCS / "dependencies.md", 2)

    def package(requirement: str) -> str:
        return re.split(r"[\[<>=! ;]", requirement)[0]

    assert set(first_codes(described["Always"])) == set(map(package, project["dependencies"]))
    listed = {(row[0].strip("`"), row[1].strip("`")) for row in rows(described["Extras"])}
    extras = project["optional-dependencies"].items()
    assert listed == {(extra, package(item)) for extra, items in extras for item in items}


def test_every_room_is_in_the_contributors_table() -> None:
    source = Path(capelet.__file__).parent
    rooms = {
        path.stem
        for path in source.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    table = rows(sections(ROOT / "CONTRIBUTING.md", 2)["Rooms and layers"])
    assert rooms - {"__init__", "__main__"} <= {row[1].strip("`") for row in table}


def test_the_changelog_begins_with_this_version() -> None:
    entries = sections(ROOT / "CHANGELOG.md", 2)
    latest = next(title for title in entries if "Unreleased" not in title)
    assert re.fullmatch(rf"\[{re.escape(capelet.__version__)}\] - \d{{4}}-\d\d-\d\d", latest)
    assert "### Privacy" in entries[latest]


# ---------------------------------------------------------------------------------------------
# Every page


def anchors(page: Path) -> set[str]:
    """Heading anchors as code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)} links {link}"
        assert target.is_relative_to(ROOT), f"{name(page)} links outside the project: {link}"
        assert not anchor or anchor in anchors(target), f"{name(page)} links {link}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_page_names_a_folder_of_some_machine(page: Path) -> None:
    found = MACHINE_PATH.search(page.read_text("utf-8"))
    assert found is None, found


def test_the_check_for_machine_paths_can_fail() -> None:
    assert MACHINE_PATH.search("see /home/" + "someone/x") and MACHINE_PATH.search("C:" + "\\x")
    assert not MACHINE_PATH.search("`~/.cache/capelet` and docs/work/a and example.org/home/x")


def test_every_page_can_be_reached_from_the_index() -> None:
    seen, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            links = re.findall(r"\]\(([^)\s#:]+\.md)", page.read_text("utf-8"))
            waiting += [(page.parent / link).resolve() for link in links]
    assert {page for page in PAGES if DOCS in page.parents} <= seen
