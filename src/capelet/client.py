"""The user's half of a split deployment: extractor and noise here, the classifier on a server.

    client = Client("https://labels.example.org", key, encoder="private/mails")
    client.classify(["where is my parcel?"])          # ['delivery']

It is the deployment of DPNR (Lyu et al. 2020) and CAPE (Plant et al. 2021): texts never leave this
process. What the server gets is a release: vectors with the noise of the recipe already in them,
whose guarantee holds against the server itself, with all that it knows of folder and code. What it
answers is computed from them, so it costs nothing more.

The same vectors sent twice are one release. So a request that failed is sent again *with the same
bytes*, and nothing is drawn for it. **Nobody is charged unless a store is given**: without one, two
calls of `classify` with one text are two releases of it.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from capelet.errors import CapeletError
from capelet.ledger.budgets import Budget
from capelet.privacy.guarantees import Guarantee
from capelet.release import PrivateEncoder, Release
from capelet.release.charging import Repeats
from capelet.release.metered import ChargingPolicy, MeteredEncoder, Source, Store, Subjects
from capelet.service.settings import is_loopback

ROUTE = "/v1/classify"
_MOST = 2048  # vectors in one request, as the server has it
_MOST_NUMBERS = 2**18  # in one request: below 6 MB as JSON, and the server reads 8 MiB
_TRIES = 3
_PAUSE = 0.5  # seconds before the second try; twice that before the third
_MOST_BYTES = 64 * 2**20  # of an answer


class ServerError(CapeletError):
    """The server cannot be reached, or refused. What was released before it stays released."""


class Client:
    """A private encoder in this process, and a server that sees only what it releases.

    `encoder` is the folder that `capelet protect` wrote, a recipe, or a `PrivateEncoder`; it must
    have a guarantee. `store`, `budget` and `repeats` charge people as everywhere
    (`ChargingPolicy`).
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        encoder: Source | None = None,
        *,
        store: Store | None = None,
        budget: float | Budget | None = None,
        repeats: Repeats = "same",
        timeout: float = 30.0,
    ) -> None:
        if encoder is None:
            raise CapeletError(
                "a client needs the private encoder that runs here: encoder=, the folder that "
                "`capelet protect` wrote"
            )
        self.url, self._key, self._timeout = _check_url(url, key), key, timeout
        self._encoder = MeteredEncoder(
            _with_guarantee(encoder), ChargingPolicy.of(store, budget, repeats)
        )
        self._opener = urllib.request.build_opener(_NoRedirects)

    @property
    def guarantee(self) -> Guarantee:
        """What holds of everything that leaves this process."""
        return self._encoder.guarantee

    def release(self, texts: Sequence[str], subject: Subjects = None) -> Release:
        """The vectors that may leave, drawn here; nothing is sent."""
        return self._encoder.release(texts, subject)

    def classify(self, texts: Sequence[str] | Release, subject: Subjects = None) -> list[str]:
        """The class of each text, as the server tells it from released vectors alone.

        A `Release` is sent as it is: classify one twice, and it is still one release.
        """
        release = texts if isinstance(texts, Release) else self.release(texts, subject)
        labels: list[str] = []
        size = max(1, min(_MOST, _MOST_NUMBERS // release.vectors.shape[1]))
        for start in range(0, len(release.vectors), size):
            labels += self._ask(release.vectors[start : start + size])
        return labels

    def _ask(self, vectors: Any) -> list[str]:
        # A float32 printed as the double that it is comes back as the same float32.
        body = json.dumps({"vectors": np.asarray(vectors, dtype=np.float32).tolist()}).encode()
        answer = self._post(body)
        try:
            labels = [item["label"] for item in answer["data"]]
        except (KeyError, TypeError):
            raise ServerError("the server's answer has no labels; is it `capelet serve`?") from None
        if len(labels) != len(vectors) or not all(isinstance(label, str) for label in labels):
            raise ServerError("the server's answer does not have one label for each vector")
        return labels

    def _post(self, body: bytes) -> Any:
        """Send these bytes, again where the server cannot answer now; never others."""
        headers = {"Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        for attempt in range(1, _TRIES + 1):
            request = urllib.request.Request(self.url + ROUTE, body, headers, method="POST")
            try:
                with self._opener.open(request, timeout=self._timeout) as response:
                    return json.loads(response.read(_MOST_BYTES))
            except urllib.error.HTTPError as error:
                with error:
                    if error.code < 500 or attempt == _TRIES:
                        raise _refusal(error) from None
            except json.JSONDecodeError:
                raise ServerError("the server's answer is not JSON") from None
            except (OSError, http.client.HTTPException) as error:
                if attempt == _TRIES:
                    reason = getattr(error, "reason", None) or type(error).__name__
                    raise ServerError(
                        f"the server cannot be reached ({reason}); what was released is in the "
                        "store where there is one, so the same call costs nothing more there"
                    ) from None
            time.sleep(_PAUSE * attempt)
        raise AssertionError  # the last attempt returned or raised


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry vectors and key to a host that nobody named."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _with_guarantee(source: Source) -> PrivateEncoder:
    """The private encoder; one whose vectors promise nothing may not send them anywhere."""
    private = source if isinstance(source, PrivateEncoder) else PrivateEncoder.from_recipe(source)
    guarantee = private.guarantee
    if guarantee.notion == "none" or guarantee.status not in ("proven", "claimed"):
        raise CapeletError(
            f"this private encoder promises {guarantee.sentence()}; a client sends its vectors "
            "away, so give one with a noise step"
        )
    return private


def _check_url(url: str, key: str | None) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CapeletError("a server's address begins with https:// (or http:// on this machine)")
    if parts.scheme == "http" and key is not None and not is_loopback(parts.hostname):
        raise CapeletError("the key would travel without TLS; give an address with https://")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise CapeletError("an API key is printable ASCII")
    return url.rstrip("/").removesuffix("/v1")


def _refusal(error: urllib.error.HTTPError) -> ServerError:
    """The server's own sentence, cut: it comes from a stranger and may be anything."""
    try:
        message = str(json.loads(error.read(65536))["error"]["message"])
    except (ValueError, KeyError, TypeError, OSError):
        message = "without a reason"
    plain = "".join(sign if sign.isprintable() else " " for sign in message[:300])
    return ServerError(f"the server refused with status {error.code}: {plain}")
