"""What is served, to whom it is charged, and how much a request may ask for."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from capelet.encoders.batches import cores
from capelet.errors import CapeletError, name_field
from capelet.privacy.guarantees import Guarantee
from capelet.release import PrivateEncoder
from capelet.release.charging import Repeats, check_repeats, check_whole_texts, promise_of


@dataclass(frozen=True)
class Bounds:
    """How much one request, and all that wait, may ask for."""

    texts: int = 2048  # of one request, as OpenAI's API has it
    tokens: int = 300_000  # likewise
    characters: int = 131_072  # of one text: far beyond what any encoder here reads
    person: int = 512  # characters of an identifier
    # 300,000 tokens are about 1.2 MB of English; escapes (\\u0000) make six bytes of one sign.
    body_bytes: int = 8 * 2**20
    body_seconds: float = 20.0
    waiting_texts: int = 8192  # four of the largest requests
    batch_texts: int = 128
    # A text that just missed a batch waits for it: half the tokens, half as long.
    batch_tokens: int = 4096
    # Lengths in one batch. An encoder runs one length at a time on each core, so these keep all
    # cores at work, and whatever has another length meets more of its own meanwhile: with 32
    # clients half as many texts are computed alone as with all lengths at once.
    batch_lengths: int = field(default_factory=lambda: 2 * cores())


@dataclass(frozen=True)
class Settings:
    """The service as it was asked for: the model's name, the repeats, the bounds of requests."""

    model: str
    repeats: Repeats = "same"
    bounds: Bounds = field(default_factory=Bounds)

    def __post_init__(self) -> None:
        check_repeats(self.repeats)
        if not self.model.strip() or len(self.model) > 200:
            raise CapeletError("the model needs a name of at most 200 characters")


def check_recipe(
    private: PrivateEncoder, repeats: Repeats, allow_unproven: bool = False
) -> Guarantee:
    """What is promised and charged where a recipe is served; a recipe that may not be is refused.

    A charge is ε for one whole text of one person. A guarantee for words, or in a metric, or of a
    training, says nothing of that kind; one that is broken or void is worth nothing at any price.
    """
    if private.consumes != "texts":
        raise CapeletError(
            "the recipe begins with vectors, and the gateway takes texts; give one with an encoder"
        )
    guarantee = private.guarantee
    if guarantee.notion != "none" and guarantee.status in ("none", "broken"):
        raise CapeletError(
            f"the recipe's guarantee is {guarantee.status}: {guarantee.sentence()}; nothing could "
            "be charged for it, so it is not served"
        )
    check_whole_texts(guarantee)
    if guarantee.status != "proven" and not allow_unproven:
        raise CapeletError(
            f"the recipe's guarantee is only claimed: {guarantee.sentence()}; serve one that is "
            f"proven, or allow it with {name_field('allow_unproven')}"
        )
    return promise_of(guarantee, repeats)


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach the address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
