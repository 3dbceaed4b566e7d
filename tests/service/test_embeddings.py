"""The protocol: what OpenAI's clients may ask, what they get, and what each answer costs."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from capelet.ledger.store import Ledger
from service.running import MODEL, Running, listen

Serve = Callable[..., Running]
EPSILON = 2.0


def vectors(response: Any) -> np.ndarray:
    assert response.status_code == 200, response.text
    return np.array([item["embedding"] for item in response.json()["data"]], dtype=np.float32)


def test_an_answer_has_vectors_usage_and_what_it_cost(serve: Serve) -> None:
    running = serve(budget=10.0)
    response = running.ask(["a text", "another text"])
    answer = response.json()
    assert answer["object"] == "list" and answer["model"] == MODEL
    assert [item["index"] for item in answer["data"]] == [0, 1]
    assert vectors(response).shape == (2, running.gateway.dimension)
    assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 0
    privacy = answer["privacy"]
    assert (privacy["epsilon"], privacy["delta"], privacy["unit"]) == (EPSILON, 0.0, "text")
    assert (privacy["charged"], privacy["left"], privacy["repeats"]) == (4.0, 6.0, "same")
    for name in ("epsilon", "delta", "unit", "charged", "left", "repeats"):
        assert response.headers[f"x-capelet-{name}"] == str(privacy[name])


def test_a_string_is_one_text_and_base64_holds_the_same_numbers(serve: Serve) -> None:
    running = serve()
    plain = running.ask("a text")
    coded = running.ask("a text", encoding_format="base64")
    content = base64.b64decode(coded.json()["data"][0]["embedding"])
    assert np.array_equal(np.frombuffer(content, "<f4"), vectors(plain)[0])


def test_a_text_that_comes_again_costs_nothing_and_is_the_same(serve: Serve) -> None:
    running = serve()
    first, second = running.ask(["a", "b"]), running.ask(["b", "a"])
    assert np.array_equal(vectors(first), vectors(second)[::-1])
    assert second.json()["privacy"]["charged"] == 0.0
    # The control: other noise for another person, and a charge.
    other = running.ask(["a", "b"], user="bob")
    assert not np.array_equal(vectors(first), vectors(other))
    assert other.json()["privacy"]["charged"] == 2 * EPSILON


def test_repeats_within_a_list_are_drawn_and_charged_once(serve: Serve) -> None:
    running = serve()
    response = running.ask(["a", "b", "a"])
    drawn = vectors(response)
    assert np.array_equal(drawn[0], drawn[2]) and not np.array_equal(drawn[0], drawn[1])
    assert response.json()["privacy"]["charged"] == 2 * EPSILON


def test_subjects_pay_for_their_own_texts(serve: Serve) -> None:
    running = serve(budget=10.0)
    response = running.ask(["a", "a", "b"], user=..., subjects=["ann", "bob", "ann"])
    drawn = vectors(response)
    assert not np.array_equal(drawn[0], drawn[1])
    privacy = response.json()["privacy"]
    assert privacy["charged"] == 3 * EPSILON
    assert (privacy["left"], privacy["left_by_text"]) == (6.0, [6.0, 8.0, 6.0])
    spent = [running.ledger.spent(person) for person in ("ann", "bob")]
    assert [promise and promise.epsilon for promise in spent] == [4.0, 2.0]


def test_an_exhausted_budget_is_a_429_that_no_client_repeats(serve: Serve) -> None:
    running = serve(budget=4.0)
    assert running.ask(["a", "b"]).status_code == 200
    refused = running.ask(["a", "c"])
    assert refused.status_code == 429
    assert refused.headers["x-should-retry"] == "false"
    error = refused.json()["error"]
    assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
    assert "ann" not in refused.text
    # All or nothing: of ("a", "c") nothing was stored, and what was paid for still comes.
    assert running.ledger.counts().releases == 2
    assert running.ask("a").json()["privacy"]["charged"] == 0.0


def test_who_is_refused_again_costs_no_draw(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    running = serve(budget=4.0)
    assert running.ask(["a", "b"]).status_code == 200
    assert running.ask("c").status_code == 429

    def fail(*_: object) -> None:
        raise AssertionError("nothing may be drawn")

    with monkeypatch.context() as patch:
        patch.setattr(running.gateway.private, "release", fail)
        assert running.ask("d").status_code == 429
        # More than any budget pays for, of somebody new.
        assert running.ask(["a", "b", "c"], user="bob").status_code == 429
    # The control: what a budget pays for is served.
    assert running.ask("a", user="bob").status_code == 200


def test_exhausted_midway_charges_nobody(serve: Serve) -> None:
    running = serve(budget=4.0)
    subjects = ["ann", "bob", "bob", "bob"]
    refused = running.ask(["a", "b", "c", "d"], user=..., subjects=subjects)
    assert refused.status_code == 429
    assert running.ledger.counts().releases == 0


def test_an_idempotency_key_names_one_request(serve: Serve) -> None:
    running = serve()
    header = {"headers": {"Idempotency-Key": "one"}}
    first, again = running.ask("a", **header), running.ask("a", **header)
    assert first.content == again.content
    assert first.json()["privacy"]["charged"] == EPSILON
    other = running.ask("b", **header)
    assert other.status_code == 409
    assert other.json()["error"]["code"] == "idempotency_key_reused"
    assert running.ledger.counts().releases == 1
    # The control: the same body under another key of the header is served.
    assert running.ask("b", headers={"Idempotency-Key": "two"}).status_code == 200


@pytest.mark.parametrize("header", ["", "x" * 256, "with\ttab"])
def test_an_idempotency_key_that_is_none(serve: Serve, header: str) -> None:
    response = serve().ask("a", headers={"Idempotency-Key": header})
    assert response.status_code == 400


def test_fresh_draws_every_request_and_demands_a_key(serve: Serve) -> None:
    running = serve(repeats="fresh")
    assert running.ask("a").status_code == 400
    one = running.ask(["a", "a"], headers={"Idempotency-Key": "1"})
    two = running.ask(["a", "a"], headers={"Idempotency-Key": "2"})
    drawn = np.concatenate([vectors(one), vectors(two)])
    assert len(np.unique(drawn, axis=0)) == 4
    assert two.json()["privacy"]["charged"] == 2 * EPSILON
    again = running.ask(["a", "a"], headers={"Idempotency-Key": "1"})
    assert again.json()["data"] == one.json()["data"]
    assert again.json()["privacy"]["charged"] == 2 * EPSILON
    assert running.ledger.counts().releases == 4


def test_what_one_key_was_given_another_is_not_told(serve: Serve) -> None:
    running = serve()
    _, one = running.ledger.keys.add("one")
    _, two = running.ledger.keys.add("two")
    first, other = running.ask("a", one), running.ask("a", two)
    # Else `charged: 0` would tell the second caller that the first had sent this text.
    assert other.json()["privacy"]["charged"] == EPSILON
    assert not np.array_equal(vectors(first), vectors(other))
    # The person pays for both, and each key has a memory of its own.
    assert other.json()["privacy"]["left"] == first.json()["privacy"]["left"] - EPSILON
    assert np.array_equal(vectors(running.ask("a", one)), vectors(first))


def test_another_key_may_use_the_same_idempotency_key(serve: Serve) -> None:
    running = serve()
    secrets = [running.ledger.keys.add(label)[1] for label in ("one", "two")]
    header = {"headers": {"Idempotency-Key": "same"}}
    statuses = [
        running.ask(text, secret, **header).status_code
        for text, secret in zip(("a", "b"), secrets, strict=True)
    ]
    assert statuses == [200, 200]


def test_models(serve: Serve) -> None:
    running = serve()
    with running.client() as client:
        (model,) = client.get("/v1/models").json()["data"]
        assert model["id"] == MODEL and model["privacy"]["epsilon"] == EPSILON
        assert client.get(f"/v1/models/{MODEL}").json() == model
        assert client.get("/v1/models/other").status_code == 404


def test_dimensions_are_the_recipes_own(serve: Serve) -> None:
    running = serve()
    width = running.gateway.dimension
    assert running.ask("a", dimensions=width).status_code == 200
    assert running.ask("a", dimensions=width - 1).status_code == 400


def test_a_restart_forgets_nothing(serve: Serve, private: Any, tmp_path: Any) -> None:
    first = serve().ask("a")
    with (
        Ledger(tmp_path / "store.db", keeps_names=False) as ledger,
        listen(ledger, private) as second,
    ):
        again = second.ask("a")
    assert np.array_equal(vectors(first), vectors(again))
    assert again.json()["privacy"]["charged"] == 0.0
