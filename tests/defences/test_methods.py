"""What every method of the table promises; a new one is picked up here by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capelet.defences import (
    KEEPS,
    METHODS,
    Defence,
    HeadShape,
    Settings,
    TrainingPrivacy,
    check_attributes,
    check_needs,
    check_options,
    dense,
    fit,
    method,
)
from capelet.defences.fitting import Schedule
from capelet.errors import CapeletError, DataError
from capelet.mechanisms import Laplace
from capelet.privacy.guarantees import NONE, Guarantee
from capelet.question import Network, Training
from capelet.release import PrivateEncoder
from capelet.release.steps import draws

EPSILON = 8.0
ON_VECTORS = [name for name, item in METHODS.items() if "texts" not in item.needs]
NOISY = sorted(name for name, item in METHODS.items() if "epsilon" in item.needs)
SHORT = Settings(schedule=Schedule(epochs=3, device="cpu"))


def settings_of(name: str) -> Settings:
    return replace(SHORT, epsilon=EPSILON) if name in NOISY else SHORT


@pytest.fixture(scope="session")
def small_part(world: Any) -> Any:
    part = world.part
    return replace(part, fit=part.fit[:300], tune=part.tune[:100])


@pytest.fixture(scope="session")
def fitted(small_part: Any) -> Any:
    """Each method fitted once, when it is first asked for."""
    made: dict[str, Defence] = {}

    def find(name: str) -> Defence:
        if name not in made:
            with pytest.MonkeyPatch.context() as patch:
                # gr+ makes 150 steps however few epochs are asked for: here a few must do.
                patch.setattr(dense, "_pace", lambda schedule, *others: schedule)
                made[name] = fit(name, small_part, settings_of(name))
        return made[name]

    return find


@pytest.mark.parametrize("name", ON_VECTORS)
def test_a_method_makes_steps_that_save_and_come_back(
    name: str, fitted: Any, world: Any, tmp_path: Path
) -> None:
    found = fitted(name)
    private = PrivateEncoder(*found.steps)
    assert found.outcome.map in private.steps and found.outcome.seconds >= 0
    back = PrivateEncoder.load(private.save(tmp_path))
    assert back.recipe == private.recipe and back.guarantee == private.guarantee
    rows = world.others[:20]
    frozen = next(step for step in back.steps if step.describe()["step"] == "map")
    if found.before is None:
        np.testing.assert_array_equal(frozen(rows), found.outcome.map(rows))
    assert np.isfinite(back.release(rows).vectors).all()


@pytest.mark.parametrize("name", ON_VECTORS)
def test_the_guarantee_is_that_of_the_noise_and_of_nothing_else(name: str, fitted: Any) -> None:
    promised = PrivateEncoder(*fitted(name).steps).guarantee
    if name in NOISY and name != "mdp":  # whose noise is in its texts
        assert (promised.epsilon, promised.notion) == (EPSILON, "local")
    else:
        assert promised == replace(NONE, training=NONE)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_draws_where_it_has_noise(name: str, fitted: Any, world: Any) -> None:
    noise = METHODS[name].noise
    steps = METHODS[name].text_steps(settings_of(name))
    if name in ON_VECTORS:
        private, rows = PrivateEncoder(*fitted(name).steps), world.others[:20]
        one, two = (private.release(rows).vectors for _ in range(2))
        assert private.draws is (noise == "vectors")
        assert private.draws or np.array_equal(one, two)
    assert any(draws(step) for step in steps) is (METHODS[name].rewrites is not None)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_needs(name: str, small_part: Any) -> None:
    needs = METHODS[name].needs
    assert METHODS[name].summary.endswith(".")
    assert needs <= {"label", "private", "epsilon", "texts"}
    bare = {"task": small_part.task, "secrets": small_part.secrets}
    assert check_needs(name, settings_of(name), **bare) is METHODS[name]
    if "epsilon" in needs:
        with pytest.raises(CapeletError, match="needs an epsilon"):
            check_needs(name, SHORT, **bare)
    if "private" in needs:
        with pytest.raises(DataError, match="needs a private attribute"):
            check_needs(name, settings_of(name), small_part.task, ())
    if "label" in needs:
        with pytest.raises(DataError, match="there is no label"):
            check_needs(name, settings_of(name), None, small_part.secrets)
    if "neighbours" not in METHODS[name].keeps:
        with pytest.raises(CapeletError, match="keeps a task"):
            check_needs(name, replace(settings_of(name), keep="neighbours"), **bare)


def test_the_record_says_what_a_method_can_do() -> None:
    can = {
        "layers": {"fx", "gr", "gr+", "ldp", "cape", "dpnr"},
        "neighbours": {"gr", "gr+", "leace"},
        "rewrites": {"mdp", "dpnr"},
        "vectors": {"fx", "gr", "gr+", "cgt", "leace", "ldp", "cape", "bottleneck"},
        "fights": {"gr", "gr+", "cgt", "leace", "cape", "bottleneck"},
        "fights without lambda": {"cgt", "leace"},
    }

    def names(holds: Any) -> set[str]:
        return {name for name, item in METHODS.items() if holds(item)}

    assert names(lambda item: item.layers) == can["layers"]
    assert names(lambda item: "neighbours" in item.keeps) == can["neighbours"]
    assert names(lambda item: item.rewrites is not None) == can["rewrites"]
    assert names(lambda item: item.on_vectors) == can["vectors"]
    assert names(lambda item: item.fights_with(Settings(adversary_weight=1.0))) == can["fights"]
    assert (
        names(lambda item: item.fights_with(Settings(adversary_weight=0.0)))
        == can["fights without lambda"]
    )
    assert names(lambda item: "label" not in item.needs_for("task")) == {"leace"}
    for name, item in METHODS.items():
        assert (item.noise != "none") == ("epsilon" in item.needs), name
        assert list(item.space("neighbours")) == [k for k in item.space("task") if k != "width"]


SPACES = {
    "fx": ["width"],
    "ae": ["width"],
    "gr": ["adversary_weight", "width"],
    "gr+": ["adversary_weight", "width"],
    "cgt": ["width"],
    "leace": [],
    "ldp": ["epsilon", "width"],
    "cape": ["adversary_weight", "epsilon", "width"],
    "mdp": ["width"],
    "dpnr": ["epsilon", "width"],
    "bottleneck": ["adversary_weight", "epsilon"],
}


@pytest.mark.parametrize("name", METHODS)
def test_the_search_draws_what_the_record_names_in_its_order(name: str) -> None:
    space = METHODS[name].space("task")
    assert list(space) == SPACES[name]
    known = {"adversary_weight": (0.03, 30.0), "epsilon": (0.5, 16.0), "width": [16, 32, 64, 128]}
    assert all(space[key] == known[key] for key in space)


def test_a_preset_equal_to_gr_under_another_name_behaves_as_gr(
    small_part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing may know a method by its name: not its fit, its search, its checks, its users."""
    from capelet.integrations import Protector
    from capelet.workflows.settings_choice import _space

    monkeypatch.setitem(METHODS, "again", replace(METHODS["gr"]))
    maps = {name: fit(name, small_part, SHORT).outcome.map.digest for name in ("gr", "again")}
    assert maps["gr"] == maps["again"]
    for keep in KEEPS:
        chosen = replace(SHORT, keep=keep)
        spaces = [_space(name, chosen) for name in ("gr", "again")]
        assert spaces[0] == spaces[1] and "adversary_weight" in spaces[1]
        assert "adversary_weight" not in _space("again", replace(chosen, adversary_weight=1.0))
        assert check_needs("again", chosen, small_part.task, small_part.secrets)
    check_needs("again", replace(SHORT, tune_layers=2), small_part.task, small_part.secrets)
    with pytest.raises(DataError, match="keep neighbours instead"):
        check_needs("again", SHORT, None, small_part.secrets)
    x, task = small_part.vectors, small_part.task.codes
    secret = small_part.secrets[0].codes
    released = [
        Protector(name, epochs=2, random_state=0).fit(x, task, private=secret).transform(x)
        for name in ("gr", "again")
    ]
    np.testing.assert_array_equal(*released)
    assert not Protector("again", keep="neighbours")._needs_label()


def test_the_search_over_lambda_is_the_same_for_a_preset_equal_to_gr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("optuna", reason="the extra protect is not installed")
    from capelet.data.corpus import Corpus
    from capelet.evaluation.plan import Plan
    from capelet.release import PrivateEncoder
    from capelet.workflows.settings_choice import search
    from capelet.workflows.training import TrainingJob

    random = np.random.default_rng(0)
    task, secret = random.integers(0, 2, 600), random.integers(0, 2, 600)
    vectors = random.normal(size=(600, 6)).astype(np.float32)
    vectors[:, 0] += 3 * task
    vectors[:, 1] += 3 * secret
    corpus = Corpus(vectors=vectors, label=task, private={"secret": secret}, name="planted")
    plan = Plan.of(corpus, 1)
    monkeypatch.setitem(METHODS, "again", replace(METHODS["gr"]))
    short = replace(SHORT, schedule=Schedule(epochs=2, device="cpu"))
    jobs = [
        TrainingJob(plan, name, short, plan.secrets, (), PrivateEncoder(), vectors)
        for name in ("gr", "again")
    ]
    fronts = [search(job, vectors, vectors, min_utility=0.1, trials=2) for job in jobs]
    assert fronts[0].artefact() == fronts[1].artefact()
    strengths = {point.settings["adversary_weight"] for point in fronts[1].points}
    assert len(strengths) == 2  # λ was searched, not left at its default


def test_settings_out_of_bounds_are_refused_before_any_training(small_part: Any) -> None:
    for wrong, sentence in (
        (replace(SHORT, adversary_weight=-1.0), "adversary_weight is -1.0"),
        (replace(SHORT, adversary_weight=float("nan")), "adversary_weight is nan"),
        (replace(SHORT, width=0), "width"),
        (replace(SHORT, keep="neighbors"), "did you mean 'neighbours'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(CapeletError, match=sentence):
            fit("gr", small_part, wrong)
    with pytest.raises(CapeletError, match="epsilon is 0"):
        fit("ldp", small_part, replace(SHORT, epsilon=0))
    with pytest.raises(CapeletError, match="there is no method 'grr'; did you mean 'gr'"):
        method("grr")
    assert set(KEEPS) == {"task", "neighbours", "both"}


@pytest.mark.parametrize("name", ["gr", "cape", "cgt", "bottleneck", "leace"])
def test_the_same_seed_gives_the_same_map(name: str, fitted: Any, small_part: Any) -> None:
    chosen = settings_of(name)
    again = fit(name, small_part, chosen)
    assert again.outcome.map.digest == fitted(name).outcome.map.digest
    other = replace(chosen, schedule=replace(chosen.schedule, seed=1))
    moved = fit(name, small_part, other).outcome.map.digest != again.outcome.map.digest
    assert moved == (name != "leace")  # which has nothing to draw


def test_gradient_reversal_without_lambda_is_the_plain_task_map(world: Any) -> None:
    idle = fit("gr", world.part, replace(SHORT, adversary_weight=0.0))
    plain = fit("fx", world.part, SHORT)
    rows = world.others[:50]
    np.testing.assert_allclose(idle.outcome.map(rows), plain.outcome.map(rows), atol=1e-5)
    assert set(idle.outcome.joint) == {"line", "radius"} and not plain.outcome.joint


def test_cape_is_post_processing_of_ldp(fitted: Any) -> None:
    """The same noise first; after it there is a map and nothing else, so no attack on CAPE can
    beat the best attack on LDP's noise, and its guarantee is that noise's."""
    steps = fitted("cape").steps
    assert steps[0] == Laplace(EPSILON) == fitted("ldp").steps[0]
    assert [step.guarantee for step in steps[1:]] == [None]
    assert PrivateEncoder(*steps).guarantee == Guarantee(EPSILON, training=NONE)


def test_noise_of_the_release_is_never_that_of_the_training(fitted: Any, world: Any) -> None:
    rows = world.others[:50]
    for name in ("ldp", "cape", "dpnr"):
        private = PrivateEncoder(*fitted(name).steps)
        assert (private.release(rows).vectors != private.release(rows).vectors).any()


def test_the_false_comfort_of_reversal_shows(world: Any) -> None:
    """The joint adversary reads less than a fresh attacker does, on the very same map."""
    schedule = Schedule(epochs=30, device="cpu")
    made = fit("gr", world.part, Settings(adversary_weight=1.0, schedule=schedule))
    assert world.reads("line", "kernel", made.outcome.map) > made.outcome.joint["line"] + 0.1


@pytest.mark.slow
def test_gr_plus_beats_reversal_before_fresh_attackers(world: Any) -> None:
    schedule = Schedule(epochs=30, device="cpu")
    plus = fit("gr+", world.part, Settings(adversary_weight=3.0, schedule=schedule)).outcome.map
    plain = fit("gr", world.part, Settings(adversary_weight=1.0, schedule=schedule)).outcome.map
    for secret in ("line", "radius"):
        strongest = [
            max(world.reads(secret, kind, made) for kind in ("linear", "kernel"))
            for made in (plus, plain)
        ]
        assert strongest[0] < strongest[1] - 0.05
    assert world.reads("task", through=plus) > 0.88


NO_EXTRAS = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "optuna", "concept_erasure"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import json
import numpy as np
from capelet.release import PrivateEncoder

private = PrivateEncoder.load(sys.argv[1])
rows = np.load(sys.argv[2])
frozen = [step for step in private.steps if step.describe()["step"] == "map"]
print(json.dumps([[step(rows).tolist() for step in frozen], private.release(rows).vectors.shape]))
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize("name", ["gr", "bottleneck", "leace"])
def test_a_folder_works_without_the_training_extras(
    name: str, fitted: Any, world: Any, tmp_path: Path
) -> None:
    """In a process where torch, optuna and concept-erasure cannot be imported: the same vectors."""
    found, rows = fitted(name), world.others[:30]
    PrivateEncoder(*found.steps).save(tmp_path / "private")
    np.save(tmp_path / "rows.npy", rows)
    paths = [str(tmp_path / "private"), str(tmp_path / "rows.npy")]
    done = subprocess.run(
        [sys.executable, "-c", NO_EXTRAS, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (got,), shape = json.loads(done.stdout)
    wanted = found.outcome.map(rows)
    assert np.abs(np.array(got) - wanted).max() <= 1e-6 * np.abs(wanted).max()
    assert tuple(shape) == wanted.shape


@pytest.mark.parametrize(
    "code, loads",
    [
        ("import capelet.defences", False),
        ("from capelet.cli import app; app(['protect', '--help'])", False),
        ("import capelet.defences.fitting", True),  # the control: what trains does need it
    ],
)
def test_the_table_of_methods_is_read_without_torch(code: str, loads: bool) -> None:
    """Torch takes a second to import: a list or a help must not wait for it."""
    process = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print('torch' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.splitlines()[-1] == str(loads)


# ---- as the papers have them ---------------------------------------------------------------------


def test_a_preset_is_what_its_paper_states_and_choices_go_before_it() -> None:
    paper = Settings.of(Training(), Network("yawyw"))
    assert (paper.schedule.batch, paper.schedule.epochs, paper.width) == (32, 100, 64)
    cape = Settings.of(Training(), Network("cape", dropout=0.1))
    assert cape.heads == HeadShape(256, 0.1) and cape.width == 256
    assert cape.schedule == replace(Schedule(), rate=1e-4)
    assert Settings.of(Training(), Network()) == Settings()
    with pytest.raises(CapeletError, match="did you mean 'yawyw'"):
        Settings.of(Training(), Network("yawy"))
    with pytest.raises(CapeletError, match="rate is 0"):
        Settings.of(Training(), Network(rate=0.0))
    with pytest.raises(CapeletError, match="dropout is 1"):
        Settings.of(Training(), Network(dropout=1.0))


def test_the_default_is_a_choice_where_somebody_chose_it() -> None:
    """`--preset cape --width 64` trained 256: that 64 was chosen was guessed from the value."""
    assert Settings.of(Training(), Network("cape", width=64)).width == 64
    assert Settings.of(Training(), Network(width=64)).width == 64 != Settings().width
    assert Settings.of(
        Training(), Network(dropout=0.0), Settings.of(Training(), Network("cape"))
    ) != (Settings.of(Training(), Network("cape")))
    assert METHODS["gr"].complete(Settings()).width == Settings().units == 64


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("leace", {"adversary_weight": {"named": 1.0}}, "has one weight for all"),
        ("cgt", {"adversary_weight": {"named": 1.0}}, "has one weight for all"),
        (
            "gr+",
            {"adversary_weight": {"named": 1.0}, "keep": "neighbours"},
            "has one weight for all",
        ),
        ("gr", {"adversary_weight": {"named": -1.0}}, "the adversary_weight of 'named' is -1"),
        ("gr+", {"adversary_loss": "bounded"}, "does not read adversary_loss=; .* gr, cape"),
        ("gr", {"adversary_loss": "bound"}, "did you mean 'bounded'"),
        ("leace", {"heads": HeadShape(100)}, "does not read dropout="),
        ("dpnr", {"word_dropout": 1.0, "epsilon": 8.0}, "word_dropout is 1"),
    ],
)
def test_what_a_training_would_not_read_is_refused(
    world: Any, name: str, settings: dict[str, Any], sentence: str
) -> None:
    part = world.part
    with pytest.raises(CapeletError, match=sentence):
        check_needs(name, Settings(**settings), part.task, part.secrets)


def test_what_a_training_reads_is_allowed(world: Any) -> None:
    part = world.part
    for name, settings in {
        "gr": Settings(
            adversary_weight={"a": 1.0}, adversary_loss="bounded", heads=HeadShape(100, 0.4)
        ),
        "gr+": Settings(adversary_weight={"a": 1.0}, heads=HeadShape(100)),
        "cape": Settings(8.0, adversary_weight={"a": 1.0}, adversary_loss="bounded"),
    }.items():
        assert check_needs(name, settings, part.task, part.secrets) is METHODS[name]
    check_options("mdp", ["table", "batch"])
    with pytest.raises(CapeletError, match="does not read table=; those that do are mdp"):
        check_options("gr", ["table"])
    check_attributes(Settings(adversary_weight={"age": 1.0}), ["age"])
    with pytest.raises(DataError, match=r"adversary_weight= names 'aeg'.*did you mean 'age'"):
        check_attributes(Settings(adversary_weight={"aeg": 1.0}), ["age"])


def test_a_private_training_takes_neither_dropout_nor_a_bounded_adversary(world: Any) -> None:
    part, privacy = world.part, TrainingPrivacy(8.0)
    for settings in (
        Settings(training=privacy, heads=HeadShape(200, 0.4)),
        Settings(training=privacy, adversary_loss="bounded"),
    ):
        with pytest.raises(CapeletError, match="would take twice"):
            check_needs("gr", settings, part.task, part.secrets)
    check_needs("gr", Settings(training=privacy), part.task, part.secrets)


def test_no_dropout_is_no_step() -> None:
    assert METHODS["dpnr"].text_steps(Settings(8.0, word_dropout=0.0)) == ()
    assert len(METHODS["dpnr"].text_steps(Settings(8.0, word_dropout=0.3))) == 1


def test_a_table_may_be_cut_to_its_first_words() -> None:
    whole, cut = (
        METHODS["mdp"].text_steps(Settings(8.0, table_size=size))[0] for size in (None, 100)
    )
    assert len(cut.vocabulary) == 100 < len(whole.vocabulary)


def test_a_lambda_of_one_attribute_is_a_fight(small_part: Any) -> None:
    """λ = 0 for all but one: the map differs from that of λ = 0, and from that of the other."""
    names = [item.name for item in small_part.secrets]
    none = dict.fromkeys(names, 0.0)
    maps = [
        fit("gr", small_part, replace(SHORT, adversary_weight=weight)).outcome.map.digest
        for weight in (0.0, {**none, names[0]: 1.0}, none)
    ]
    assert maps[0] == maps[2] != maps[1]
    assert METHODS["gr"].fights_with(replace(SHORT, adversary_weight={**none, names[0]: 1.0}))
    assert not METHODS["gr"].fights_with(replace(SHORT, adversary_weight=none))


def test_who_is_not_named_has_the_weight_of_the_method() -> None:
    """One mapping says all: the number and the mapping were two settings, of which one was lost."""
    chosen = Settings(adversary_weight={"age": 0.3})
    assert METHODS["gr"].complete(chosen, ["age", "gender"]).lambdas == {
        "age": 0.3,
        "gender": 1.0,
    }
    assert METHODS["bottleneck"].complete(chosen, ["gender"]).lambdas["gender"] == 0.0
    assert METHODS["gr"].complete(Settings()).lam == 1.0


def test_bounded_heads_and_dropout_change_what_is_learnt(small_part: Any) -> None:
    maps = {
        fit("gr", small_part, replace(SHORT, **change)).outcome.map.digest
        for change in (
            {},
            {"adversary_loss": "bounded"},
            {"heads": HeadShape(100)},
            {"heads": HeadShape(200, 0.4)},
        )
    }
    assert len(maps) == 4
    again = fit("gr", small_part, replace(SHORT, heads=HeadShape(200, 0.4))).outcome.map.digest
    assert again in maps


@pytest.mark.parametrize("name", ON_VECTORS)
def test_the_head_that_was_trained_along_tells_the_task(name: str, fitted: Any, world: Any) -> None:
    """From released vectors of rows to fit on; erasure trains none, and none may be made up."""
    outcome = fitted(name).outcome
    if name == "leace":
        assert outcome.head is None
        return
    part, head = world.part, outcome.head
    assert head.classes == part.task.classes and head.task == part.task.name
    assert head.map.origin == outcome.map.origin
    rows = part.fit[:300]
    vectors = PrivateEncoder(*fitted(name).steps).release(part.vectors[rows]).vectors
    truth = [part.task.classes[code] for code in part.task.codes[rows]]
    share = np.mean([one == two for one, two in zip(head.predict(vectors), truth, strict=True)])
    majority = np.bincount(part.task.codes[rows]).max() / len(rows)
    noisy = name in NOISY and name not in ("bottleneck", "mdp")  # a vector at ε = 8 says little
    assert share > (0.4 if noisy else majority + 0.1)


def test_the_head_of_a_private_training_is_covered_by_it(small_part: Any) -> None:
    settings = replace(SHORT, training=TrainingPrivacy(8.0, 1e-3))
    for name, more in (("fx", {}), ("bottleneck", {"epsilon": 4.0})):
        outcome = fit(name, small_part, replace(settings, **more)).outcome
        assert outcome.head is not None and outcome.head.map.training.status == "proven"
        assert outcome.head.map.origin == outcome.map.origin
