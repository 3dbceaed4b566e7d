"""Pages of results: drawn from their files to the byte; no file holds anything about a victim."""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.errors import OutputError
from capelet.reports.html import draw_html
from capelet.reports.markdown import draw_markdown, escape
from capelet.studies import documents
from capelet.studies.claims import Ruling
from capelet.studies.comparisons import adjust, compare_splits, compare_victims
from capelet.studies.experiments import EXPERIMENTS, Experiment, Experiments
from capelet.studies.page import EXPLORATORY, PROTOCOL, READING, index_page, result_page
from capelet.studies.result_pages import (
    quote_tables,
    result_files,
    result_latex,
    write_results,
)
from capelet.studies.results import Analysis, Origin, Result, read_results
from capelet.studies.rows import PseudonymGuesses, Row, pick
from capelet.studies.statistics import CONDITIONAL
from capelet.studies.sweeps import MatchedDifference
from capelet.studies.tables import Layout

RESULTS = Path(__file__).parents[2] / "docs/results"


def results_page(result: Result) -> str:
    return draw_markdown(result_page(result))


def results_index(
    results: Sequence[Result],
    experiments: Sequence[Experiment] = (),
    papers: Mapping[str, str] | None = None,
) -> str:
    return draw_markdown(index_page(results, Experiments(tuple(experiments), papers or {})))


def sample() -> Result:
    """A study of two methods on three splits, with the guesses of its victims still in the rows."""
    random = np.random.default_rng(0)
    people = np.array([f"{place:032x}" for place in range(60)])
    truth = random.integers(0, 2, 60)
    rows = []
    for method, share in (("fx", 0.8), ("cape", 0.6)):
        for seed in range(3):
            guess = np.where(random.random(60) < share, truth, 1 - truth)
            guesses = PseudonymGuesses(people, people, truth, guess)
            value = float(np.mean(guess == truth))
            rows.append(
                Row(
                    {"method": method, "corpus": "stance"},
                    seed,
                    "attribute-inference",
                    "gender",
                    "accuracy",
                    value,
                    chance=0.5,
                    guesses=guesses,
                )
            )
    sides = [pick(rows, method=name) for name in ("fx", "cape")]
    triple = (0.6, 0.55, 0.65)
    return Result(
        "cape",
        "strategies",
        "CAPE, Table 3: four strategies",
        "gender attacker .659 → .603 | task .820 → .746",
        "fails",
        "A fresh attacker reads <gender> all the same.",
        Origin("2026-11-16", (0, 1, 2), 754.2, "small", "`stance` for reviews"),
        tuple(rows),
        (Layout("Leakage by strategy", "method"),),
        ("corpus",),
        (Analysis(("method",), {"target": "gender"}, ("corpus",)),),
        adjust([compare_splits(*sides), compare_victims(*sides)]),
        (
            MatchedDifference(
                "ldp", "cape", "gender", "accuracy", 0.8, triple, triple, (0.0, -0.1, 0.1),
                "author", 60,
            ),
        ),
        (
            Ruling("CAPE leaks less than noise", "fails", value=0.01, low=-0.02, high=0.04),
            Ruling("It is fast", "cannot be tested here", why="no timings in the paper"),
        ),
    )  # fmt: skip


def test_every_page_in_docs_is_as_its_data_have_it() -> None:
    """Draw all of docs/results again and compare bytes; it holds for no page at all, too."""
    files = result_files(RESULTS)
    there = {path.name for path in RESULTS.iterdir() if path.is_file()}
    assert there == set(files)
    for name, content in files.items():
        assert (RESULTS / name).read_text("utf-8") == content, f"draw docs/results/{name} again"


def test_every_table_that_a_page_quotes_is_as_its_data_have_it() -> None:
    results = read_results(RESULTS)
    for page in sorted(RESULTS.parent.rglob("*.md")):
        text = page.read_text("utf-8")
        assert quote_tables(text, results) == text, f"quote the tables of {page.name} again"


def test_a_card_quotes_a_table() -> None:
    results = {"cape-strategies": sample()}
    empty = "Before.\n\n<!-- table cape-strategies 1 -->\n<!-- end of table -->\n\nAfter.\n"
    card = quote_tables(empty, results)
    assert card.startswith("Before.") and card.endswith("After.\n")
    assert "| method | gender |" in card
    assert quote_tables(card, results) == card
    # The control: a number that somebody typed is noticed.
    typed = re.sub(r"\d\d\.\d %", "99.9 %", card, count=1)
    assert typed != card and quote_tables(typed, results) == card
    for name, number in (("cape-strategy", 1), ("cape-strategies", 2), ("cape-strategies", 0)):
        other = empty.replace("cape-strategies 1", f"{name} {number}")
        with pytest.raises(OutputError, match="did you mean 'cape-strategies'"):
            quote_tables(other, results)


def test_a_folder_of_results_is_drawn_from_its_data(tmp_path: Path) -> None:
    paths = write_results(tmp_path, [sample()])
    names = {path.relative_to(tmp_path).as_posix() for path in paths}
    page = "cape-strategies.md"
    drawings = {page, "cape-strategies.tex", "cape-strategies-1.svg"}
    assert names == {"data/cape-strategies.json", "index.md", *drawings}
    assert result_files(tmp_path) == {
        path.name: path.read_text("utf-8") for path in paths if path.suffix != ".json"
    }
    # The control: a number that somebody typed is noticed.
    (tmp_path / page).write_text((tmp_path / page).read_text("utf-8").replace("fx", "gr"))
    assert result_files(tmp_path)[page] != (tmp_path / page).read_text("utf-8")


def test_a_file_is_named_after_its_study(tmp_path: Path) -> None:
    write_results(tmp_path, [sample()])
    assert set(read_results(tmp_path)) == {"cape-strategies"}
    (tmp_path / "data/copy.json").write_text(sample().to_json())
    with pytest.raises(OutputError, match=r"name it cape-strategies\.json"):
        read_results(tmp_path)


def test_nothing_yet() -> None:
    assert "None is kept yet." in results_index([])


def test_the_file_gives_the_result_back() -> None:
    result = sample()
    again = Result.parse(result.to_json(), "cape-strategies.json")
    assert again.to_json() == result.to_json()
    assert results_page(again) == results_page(result)
    assert all(row.guesses is None for row in again.rows)


def test_victims_of_one_class_stay_in_the_file_and_others_leave_no_trace() -> None:
    result = sample()
    assert "single_class" not in result.to_json()
    first = replace(result.rows[0], degenerate=True, single_class=True)
    again = Result.parse(replace(result, rows=(first, *result.rows[1:])).to_json(), "x.json")
    assert [row.single_class for row in again.rows] == [True, *[False] * (len(again.rows) - 1)]
    assert "1 degenerate cell left out (victims of one class)" in results_page(again)


def test_a_share_of_the_other_side_is_told_from_points() -> None:
    ruling = Ruling("twice as many", "holds", None, 0.904, 0.662, 1.147, 3, relation="within")
    relative = replace(sample(), claims=(replace(ruling, scale="relative"),))
    again = Result.parse(relative.to_json(), "x.json")
    assert "+90.4 % (+66.2 to +114.7)" in results_page(again)
    # The control: without a scale no file says anything of it.
    assert "scale" not in replace(sample(), claims=(ruling,)).to_json()


def test_no_victim_is_in_the_file_or_on_the_page() -> None:
    result = sample()
    texts = result.to_json() + results_page(result)
    guesses = result.rows[0].guesses
    assert guesses is not None
    assert not any(name in texts for name in guesses.victims)
    assert "guess" not in json.loads(result.to_json())["rows"][0]


def test_the_page_says_all() -> None:
    page = results_page(sample())
    for part in (
        "# CAPE, Table 3: four strategies",
        "**Fails.** A fresh attacker reads &lt;gender&gt; all the same.",
        r"gender attacker .659 → .603 \| task .820 → .746",
        "**Stand-ins:**",
        "![Leakage by strategy](cape-strategies-1.svg)",
        "Split seeds: 0, 1, 2",
        "12 min 34 s",
        "papers/cape/strategies.toml, size small",
        "Analysis of variance of gender",
        "Paired differences",
        "At equal utility",
        "no timings in the paper",
        CONDITIONAL,
    ):
        assert part in page, part
    index = results_index([sample(), replace(sample(), plan="other", verdict="holds")])
    assert "2 studies: 1 holds, 1 fails." in index
    assert "[CAPE, Table 3: four strategies](cape-strategies.md)" in index


def test_a_page_of_results_is_a_page_like_any_report() -> None:
    """The same blocks, so that the page is HTML as well: linked, drawn and escaped."""
    page = draw_html(result_page(sample()))
    assert "<strong>Fails.</strong> A fresh attacker reads &lt;gender&gt; all the same." in page
    assert page.count("<svg") == 1 and '<a href="cape-strategies.tex">' in page
    index = draw_html(index_page([sample()]))
    link = '<a href="cape-strategies.md"><span>CAPE, Table 3: four strategies</span></a>'
    assert f'<th scope="row">{link}</th>' in index and "<em>holds</em>" in index


def test_what_had_been_seen_stands_beside_the_verdict() -> None:
    sentence = "Split 0 had been seen."
    full = replace(sample(), origin=replace(sample().origin, size="full"))
    result = Result.parse(replace(full, exploratory=sentence).to_json(), "x.json")
    page = results_page(result)
    assert "**Fails (exploratory).**" in page and f"**Exploratory:** {sentence}" in page
    # Below the claims, for whoever takes the table alone: in a paper, too.
    assert page.count(f"Exploratory: {sentence}") == 1
    assert f"Exploratory: {sentence}" in result_latex(result)
    experiments = [Experiment("CAPE", "T3", "strategies", ("cape-strategies",))]
    index = results_index([result], experiments)
    assert "| [fails (exploratory)](cape-strategies.md) |" in index
    assert "| fails (exploratory) | full |" in index and escape(EXPLORATORY) in index
    assert "1 study: 1 fails." in index
    # The control: a study of which nothing had been seen is not changed by the word.
    assert "exploratory" not in full.to_json()
    pages = [results_page(full), result_latex(full), results_index([full], experiments)]
    assert not any("xploratory" in text for text in pages)


# ---------------------------------------------------------------------------------------------
# What a file may hold


def document() -> dict[str, Any]:
    return json.loads(sample().to_json())


def change(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """The sample's document with one field set."""
    result = copy.deepcopy(document())
    place: Any = result
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return result


DIGEST = "9f86d081884c7d659a2feaa0c55ad015"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("guesses",), [0, 1, 1]),
        (("rows", 0, "guess"), 1),
        (("rows", 0, "guesses"), {"victims": [DIGEST]}),
        (("rows", 0, "axes", "victim"), "v17"),
        (("rows", 0, "axes", "unit"), "v17"),
        (("rows", 0, "axes", "author"), 17),
        (("rows", 0, "axes", "authors"), "mary"),
        (("rows", 0, "axes", "method"), DIGEST),
        (("rows", 0, "axes", "method"), "my whole review of the hotel, word for word " * 5),
        (("rows", 0, "axes", "method"), ["a", "b"]),
        (("rows", 0, "value"), [0.5, 0.6]),
        (("rows", 0, "target"), DIGEST),
        (("rows", 0, "seed"), 77),
        (("differences", 0, "hits"), [1, 0]),
        (("differences", 0, "effect", "by_person"), [0.1]),
        (("differences", 0, "exclusions", "missing"), [DIGEST]),
        (("at_utility", 0, "difference"), [0.1, 0.2, 0.3, 0.4]),
        (("claims", 0, "verdict"), "probably"),
        (("exploratory",), True),
        (("origin", "seeds"), list(range(2000))),
        (("paper",), "../../etc"),
        (("schema",), 2),
        (("rows",), {}),
    ],
)
def test_whatever_else_is_refused(path: tuple[str | int, ...], value: Any) -> None:
    with pytest.raises(OutputError, match="no file of results as Capelet writes it"):
        Result.parse(json.dumps(change(path, value)), "x.json")


def test_what_results_hold_is_not_refused() -> None:
    for path, value in (
        (("axes", "method"), "fx"), (("axes", "authors"), 800), (("axes", "unit"), "author"),
        (("value",), None),
    ):  # fmt: skip
        Result.parse(json.dumps(change(("rows", 0, *path), value)), "x.json")


def test_a_field_of_another_type_is_neither_written_nor_read() -> None:
    """Whoever adds the guesses of victims to a record has not added them to the file."""

    @dataclass(frozen=True)
    class Slip:
        target: documents.Word
        guesses: tuple[int, ...] = ()
        people: PseudonymGuesses | None = None
        name: str = ""

    assert documents.plain(Slip("gender", (0, 1), sample().rows[0].guesses, "mary")) == {
        "target": "gender"
    }
    assert documents.read_record(Slip, {"target": "gender"}) == Slip("gender")
    for field in ("guesses", "people", "name"):
        with pytest.raises(ValueError, match=f"a field '{field}' that results do not hold"):
            documents.read_record(Slip, {"target": "gender", field: None})
    with pytest.raises(ValueError, match="lacks one of target"):
        documents.read_record(Slip, {})


def test_a_complaint_never_quotes_the_value() -> None:
    with pytest.raises(OutputError, match="'axes'") as error:
        Result.parse(json.dumps(change(("rows", 0, "axes", "method"), DIGEST)), "x.json")
    assert DIGEST not in str(error.value)


def test_a_bad_result_is_not_written(tmp_path: Path) -> None:
    row = replace(sample().rows[0], axes={"user": "mary"})
    with pytest.raises(OutputError, match="cannot be kept"):
        write_results(tmp_path, [sample(), replace(sample(), rows=(row,))])
    assert not list(tmp_path.rglob("*.json"))
    with pytest.raises(OutputError, match="it is no JSON"):
        Result.parse("{", "x.json")


# ---- the papers' experiments ---------------------------------------------------------------------

PAPERS = RESULTS.parents[1] / "papers"


def test_every_experiment_has_a_plan_or_a_reason_and_every_plan_an_experiment() -> None:
    account = Experiments.read(RESULTS / "data" / EXPERIMENTS)
    experiments = account.rows
    names = {name for item in experiments for name in item.plans}
    plans = {f"{path.parent.name}-{path.stem}" for path in PAPERS.glob("*/*.toml")}
    assert names == plans
    papers = {item.paper for item in experiments}
    assert papers == {"CAPE", "YAWYW", "DPNR", "Leakage", "PrivReg", "ours"}
    # A short name says nothing to whoever has not read the paper.
    assert set(account.papers) == papers


def test_the_index_has_every_experiment_with_its_verdict_or_why_there_is_none() -> None:
    experiments = [
        Experiment("CAPE", "T3", "strategies", ("cape-strategies", "cape-other")),
        Experiment("CAPE", "T9", "times", reason="a time is of a machine"),
    ]
    result = replace(sample(), origin=replace(sample().origin, size="full"))
    index = results_index([result], experiments)
    assert (
        "| CAPE | T3 | strategies | [fails](cape-strategies.md) · `papers/cape/other.toml`: not "
        "run at its full size yet |" in index
    )
    assert "| CAPE | T9 | times | cannot be tested here: a time is of a machine |" in index
    # Which paper is meant is said where it is named, and how a verdict is read before any is given.
    cited = results_index([result], experiments, {"CAPE": "Plant & others (2021)"})
    assert "- CAPE: Plant &amp; others (2021)" in cited and "CAPE: Plant" not in index
    assert cited.index(escape(READING)) < cited.index(escape(PROTOCOL)) < cited.index("[fails]")
    # A folder of somebody else has no explanations beside it to link to.
    assert escape(READING) in results_index([result]) and "](../" not in results_index([result])
    # A small study is listed among the studies, and is no verdict on the paper.
    small = results_index([sample()], experiments)
    assert "`papers/cape/strategies.toml`: not run" in small and "| small | 3 |" in small


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("nothing", "experiments"),
        ('[[experiments]]\npaper = "a"\nplace = "b"\n', "neither plans nor a reason"),
        ('[[experiments]]\nverdict = "holds"\n', "no 'verdict'"),
    ],
)
def test_a_list_of_experiments_that_types_verdicts_is_refused(
    tmp_path: Path, content: str, complaint: str
) -> None:
    path = tmp_path / EXPERIMENTS
    assert Experiments.read(path) == Experiments()
    path.write_text(content)
    with pytest.raises(OutputError, match=complaint):
        Experiments.read(path)


def test_a_citation_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / EXPERIMENTS
    path.write_text('experiments = []\n[papers]\nCAPE = "Plant (2021)"\n')
    assert Experiments.read(path) == Experiments((), {"CAPE": "Plant (2021)"})
    for slip in ("papers = 3", "[papers]\nCAPE = 2021"):
        path.write_text(f"experiments = []\n{slip}")
        with pytest.raises(OutputError, match="a citation each"):
            Experiments.read(path)


# ---- tables in cards -----------------------------------------------------------------------------


def test_a_card_waits_for_its_study_and_is_then_drawn(tmp_path: Path) -> None:
    waiting = "<!-- table cape-strategies 1, not run yet -->\nby hand\n<!-- end of table -->\n"
    assert quote_tables(waiting, {}) == waiting
    card = tmp_path / "cards" / "card.md"
    card.parent.mkdir()
    card.write_text(waiting)
    write_results(tmp_path / "results")
    assert card.read_text() == waiting
    # Nor does a small study take its place.
    write_results(tmp_path / "results", [sample()])
    assert card.read_text() == waiting
    full = replace(sample(), origin=replace(sample().origin, size="full"))
    paths = write_results(tmp_path / "results", [full])
    assert card.resolve() in paths and "by hand" not in card.read_text()
    assert card.read_text().startswith("<!-- table cape-strategies 1 -->\n")
    # A second time nothing is written into it.
    assert card.resolve() not in write_results(tmp_path / "results")


def test_every_quote_is_of_a_plan_with_that_table() -> None:
    """So that a card cannot wait for a study that nobody has planned."""
    plans = {
        f"{path.parent.name}-{path.stem}": tomllib.loads(path.read_text("utf-8"))
        for path in PAPERS.glob("*/*.toml")
    }
    for page in sorted(RESULTS.parent.rglob("*.md")):
        for name, number in re.findall(r"<!-- table (\S+) (\d+)", page.read_text("utf-8")):
            assert 1 <= int(number) <= len(plans[name]["tables"]), (
                f"{page.name} quotes {name} {number}"
            )


# ---- attackers -----------------------------------------------------------------------------------


def bench() -> Result:
    """Two releases, each read by two attackers; the choice fell on the one that holds more."""
    rows = []
    for method, place in (("raw", 0.9), ("leace", 0.6)):
        for seed in range(3):
            values = {"strongest": place, "kernel": place - 0.2, "pairs": place}
            for attacker, value in values.items():
                is_choice = attacker == "strongest"
                rows.append(
                    Row(
                        {"method": method, **({} if is_choice else {"attacker": attacker})},
                        seed,
                        "attribute-inference",
                        "gender",
                        "balanced_accuracy",
                        value + seed / 100,
                        winner="pairs" if is_choice else None,
                        holds="vectors" if attacker == "kernel" else "pairs",
                        candidate=not is_choice,
                    )
                )
    layouts = (
        Layout("The worst case", "method", winners=True),
        Layout("Every attacker", "method", "attacker"),
    )
    return replace(
        sample(), paper="bench", rows=tuple(rows), layouts=layouts, blocks=(), analyses=(),
        differences=(), at_utility=(),
    )  # fmt: skip


def test_the_worst_case_says_who_read_it_and_what_it_held() -> None:
    page = results_page(bench())
    assert "| raw | 91.0 % (88.5–93.5): 3 × pairs (pairs) |" in page
    assert "| method | strongest | kernel | pairs |" in page
    assert "**Question:**" in page and "What is claimed" in page
    again = Result.parse(bench().to_json(), "bench-strategies.json")
    assert results_page(again) == page


def test_candidates_are_shown_only_where_attackers_are_named() -> None:
    rows = bench().rows
    assert {row.candidate for row in pick(rows, method="raw")} == {False}
    assert len(pick(rows, method="raw", attacker="kernel")) == 3
    assert len(pick(rows, method="raw", attacker="strongest")) == 3


def test_a_method_stands_in_a_table_with_its_settings() -> None:
    rows = [
        Row({"method": "bottleneck", "epsilon": level}, 0, "utility", "stars", "accuracy", 0.7)
        for level in (4, 8)
    ]
    rows.append(Row({"method": "unprotected"}, 0, "utility", "stars", "accuracy", 0.8))
    layout = Layout("Task", ("method", "epsilon"), "target")
    page = results_page(replace(bench(), rows=tuple(rows), layouts=(layout,)))
    assert "| method, ε | stars |" in page
    assert "| bottleneck, ε 4 | 70.0 % |" in page and "| unprotected | 80.0 % ★ |" in page


def test_tables_for_a_paper() -> None:
    drawing = result_latex(sample())
    assert drawing.count(r"\begin{table}") == drawing.count(r"\end{table}") == 5
    assert r"\caption{Leakage by strategy}" in drawing and "booktabs" in drawing.splitlines()[0]


def test_an_estimate_is_in_the_units_of_its_measure() -> None:
    claims = (
        Ruling("bits", "holds", value=-3.2, low=-4.0, high=-2.0, metric="exposure_bits"),
        Ruling("band", "holds", value=0.6, low=0.5, high=0.7, metric="f1", relation="within"),
        Ruling("points", "holds", value=-0.1, low=-0.2, high=0.0, metric="accuracy"),
    )
    page = results_page(replace(sample(), claims=claims))
    assert "| bits | holds | −3.2 (−4.0 to −2.0) |" in page
    assert "−10.0 (−20.0 to" in page and "+60" not in page


@pytest.mark.parametrize("name", ["Anna said: I am ill.", "x" * 41, "a\nb", 3])
def test_an_attacker_is_one_of_our_short_names(name: Any) -> None:
    document = json.loads(bench().to_json())
    assert Result.parse(json.dumps(document), "x.json").rows[0].winner == "pairs"
    document["rows"][0]["winner"] = name
    with pytest.raises(OutputError, match="'winner'"):
        Result.parse(json.dumps(document), "x.json")
