"""All of the store's SQL, in what SQLite and PostgreSQL both understand.

Whoever uses it sees numbers, texts and bytes. The tables are described in `schema`.
"""

from __future__ import annotations

import hmac
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

from capelet.ledger.connection import Connection
from capelet.ledger.people import fold_person
from capelet.ledger.postgres import SCHEMES, PostgresConnection
from capelet.ledger.sqlite import SQLiteConnection


class StoredRelease(NamedTuple):
    """A vector as bytes, and the number of the person whose it is."""

    vector: bytes
    person: int


class Charge(NamedTuple):
    """So many releases of a person under a guarantee, by their numbers."""

    person: int
    guarantee: int
    releases: int


class StoredRequest(NamedTuple):
    """How a request was answered: the hash of its body, the charge, the releases in order."""

    digest: bytes
    charged: int
    names: tuple[bytes, ...]


class KeyRow(NamedTuple):
    """An API key as it is stored: hashes, and the subject sealed by the secret itself."""

    id: str
    digest: bytes
    label: str
    person: bytes | None
    sealed_subject: bytes | None
    is_operator: int
    made: str
    revoked: str | None


class Entry(NamedTuple):
    """One act of the log; charges are (pseudonym, guarantee, releases) in order of person."""

    number: int
    time: str
    kind: str
    content: str
    charges: Sequence[tuple[bytes, str, int]]

    def link(self, key: bytes, previous: bytes) -> bytes:
        """The head after this entry: a keyed hash of the head before and of all that is in it."""
        # Keyed: a head that is kept elsewhere tells nothing to who has not got the store.
        content = [*self[:4], [(who.hex(), promise, count) for who, promise, count in self.charges]]
        return hmac.digest(key, previous + json.dumps(content).encode(), "sha256")


# Running sums of everything, or of what was charged since the day began that the store is in.
Sums = Literal["totals", "windows"]
_KEY_ROWS = f"SELECT {', '.join(KeyRow._fields)} FROM keys"


def address(place: Path | str) -> Path | str:
    """Where a store is: the URL of a database as it is, anything else as a path."""
    is_url = isinstance(place, str) and place.startswith(SCHEMES)
    return place if is_url else Path(place)


def connect(place: Path | str) -> Connection:
    """The connection to a store: a file, or a database of PostgreSQL."""
    where = address(place)
    return SQLiteConnection(where) if isinstance(where, Path) else PostgresConnection(where)


class Database:
    """The acts of a store as queries; each runs in the transaction that the caller holds."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._rows, self._write = connection.rows, connection.write
        self._write_many, self._among = connection.write_many, connection.among

    @property
    def key(self) -> bytes:
        self.connection.refresh()
        return self.connection.key

    def transaction(self) -> AbstractContextManager[None]:
        return self.connection.transaction()

    def snapshot(self) -> AbstractContextManager[None]:
        return self.connection.snapshot()

    # ---- facts and people ----

    def fact(self, name: str) -> str | None:
        rows = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return _text(rows[0][0]) if rows else None

    def set_fact(self, name: str, value: str | bytes) -> None:
        self._write(
            "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = "
            "excluded.value",
            name,
            value.encode() if isinstance(value, str) else value,
        )

    def digest(self, *parts: bytes) -> bytes:
        """A hash of the parts that nobody without the store's key can compute."""
        return keyed_hash(self.key, *parts)

    def pseudonym(self, person: str) -> bytes:
        return self.digest(b"person", person.encode())

    def numbers(self, people: Iterable[str]) -> dict[str, int]:
        """The numbers of people, by pseudonym: who was erased is still known, and still capped."""
        by_pseudonym = {self.pseudonym(person): person for person in people}
        rows = self._among("SELECT pseudonym, id FROM people WHERE pseudonym", by_pseudonym)
        return {by_pseudonym[pseudonym]: number for pseudonym, number in rows}

    def add_people(self, people: Sequence[str], keeps_names: bool = True) -> dict[str, int]:
        """The numbers of people, who are entered if need be; erased ones stay without a name."""
        self._write_many(
            "INSERT INTO people (pseudonym, fold, name) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [
                (self.pseudonym(person), self._fold(person), person if keeps_names else None)
                for person in people
            ],
        )
        return self.numbers(people)

    def people(self) -> list[tuple[bytes, str | None]]:
        """Pseudonym and name of everyone; without a name who was erased or never had one here."""
        return list(self._rows("SELECT pseudonym, name FROM people"))

    def has_alike(self, person: str) -> bool:
        """Whether somebody else's identifier looks like this one."""
        query = "SELECT 1 FROM people WHERE fold = ? AND pseudonym != ? LIMIT 1"
        return bool(self._rows(query, self._fold(person), self.pseudonym(person)))

    def _fold(self, person: str) -> bytes:
        return self.digest(b"fold", fold_person(person).encode())

    def erase(self, person: int) -> int:
        """Delete a person's name and releases; how many went."""
        self._write("UPDATE people SET name = NULL WHERE id = ?", person)
        # What an idempotency key was answered with can no longer be given out again.
        requests = self._rows(
            "SELECT DISTINCT a.request FROM answers a JOIN releases r ON r.name = a.release "
            "WHERE r.person = ?",
            person,
        )
        self._write_many("DELETE FROM requests WHERE name = ?", requests)
        self._write_many("DELETE FROM answers WHERE request = ?", requests)
        return self._write("DELETE FROM releases WHERE person = ?", person)

    # ---- charges ----

    def sums(self, table: Sums, people: Iterable[int]) -> Iterator[Charge]:
        """How many releases people were charged, by guarantee; see `Sums`."""
        query = f"SELECT person, guarantee, releases FROM {table} WHERE person"
        return (Charge(*row) for row in self._among(query, people))

    def clear_windows(self) -> None:
        self._write("DELETE FROM windows")

    def counts(self) -> tuple[int, int, float]:
        """People, releases that were charged, and the highest sum of ε of one person."""
        query = (
            "SELECT count(*), coalesce(sum(releases), 0), coalesce(max(epsilon), 0.0) FROM ("
            "SELECT sum(t.releases) AS releases, sum(t.releases * g.epsilon) AS epsilon "
            "FROM totals t JOIN guarantees g ON g.id = t.guarantee GROUP BY t.person) AS sums"
        )
        rows = self._rows(query)
        return (int(rows[0][0]), int(rows[0][1]), float(rows[0][2])) if rows else (0, 0, 0.0)

    def highest(self, count: int) -> list[tuple[bytes, float]]:
        """Pseudonyms and sums of ε of those who spent most."""
        query = (
            "SELECT p.pseudonym, sum(t.releases * g.epsilon) AS epsilon FROM totals t "
            "JOIN guarantees g ON g.id = t.guarantee JOIN people p ON p.id = t.person "
            "GROUP BY p.pseudonym ORDER BY epsilon DESC, p.pseudonym LIMIT ?"
        )
        return list(self._rows(query, count))

    def guarantee(self, number: int) -> str:
        return str(self._rows("SELECT content FROM guarantees WHERE id = ?", number)[0][0])

    def guarantee_number(self, content: str, epsilon: float) -> int:
        query = "SELECT id FROM guarantees WHERE content = ?"
        rows = self._rows(query, content)
        if not rows:
            self._write("INSERT INTO guarantees (content, epsilon) VALUES (?, ?)", content, epsilon)
            rows = self._rows(query, content)
        return int(rows[0][0])

    def charge(self, acts: Sequence[tuple[str, Sequence[Charge]]]) -> None:
        """Add to people's totals, and write entries of the log: each a content and its charges."""
        charges = [charge for _, charges in acts for charge in charges]
        self.add("totals", charges)
        pseudonyms = dict(
            self._among(
                "SELECT id, pseudonym FROM people WHERE id", {charge.person for charge in charges}
            )
        )
        guarantees = dict(
            self._among(
                "SELECT id, content FROM guarantees WHERE id",
                {charge.guarantee for charge in charges},
            )
        )
        entries = [
            (content, [(pseudonyms[who], guarantees[which], n) for who, which, n in sorted(some)])
            for content, some in acts
        ]
        first = self._append("charge", entries)
        self._write_many(
            "INSERT INTO charges VALUES (?, ?, ?, ?)",
            [(first + place, *charge) for place, (_, some) in enumerate(acts) for charge in some],
        )

    def add(self, table: Sums, charges: Iterable[Charge]) -> None:
        sums: Counter[tuple[int, int]] = Counter()
        for person, guarantee, releases in charges:
            sums[person, guarantee] += releases
        self._write_many(
            f"INSERT INTO {table} VALUES (?, ?, ?) ON CONFLICT (person, guarantee) "
            f"DO UPDATE SET releases = {table}.releases + excluded.releases",
            [(*which, releases) for which, releases in sorted(sums.items())],
        )

    # ---- the log ----

    def append(self, kind: str, content: str) -> None:
        """Write an entry without charges, linked to the one before."""
        self._append(kind, [(content, [])])

    def _append(
        self, kind: str, contents: Sequence[tuple[str, Sequence[tuple[bytes, str, int]]]]
    ) -> int:
        """Write entries, each linked to the one before; the number of the first."""
        count, head = self.head()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        rows = []
        for number, (content, charges) in enumerate(contents, count + 1):
            entry = Entry(number, now, kind, content, charges)
            head = entry.link(self.key, head)
            rows.append((*entry[:4], head))
        self._write_many("INSERT INTO log VALUES (?, ?, ?, ?, ?)", rows)
        return count + 1

    def head(self) -> tuple[int, bytes]:
        """How many entries there are, and the last link of their chain."""
        rows = self._rows("SELECT number, head FROM log ORDER BY number DESC LIMIT 1")
        return (int(rows[0][0]), rows[0][1]) if rows else (0, b"")

    def acts(self, kind: str) -> list[tuple[str, str]]:
        """Time and content of all entries of a kind."""
        return self._rows("SELECT time, content FROM log WHERE kind = ? ORDER BY number", kind)

    def links(self) -> Iterator[tuple[int, bytes, bool]]:
        """Each entry's number, its link as computed anew, and whether that is the stored one."""
        query = (
            "SELECT l.number, l.time, l.kind, l.content, l.head, p.pseudonym, g.content, "
            "c.releases FROM log l LEFT JOIN charges c ON c.entry = l.number "
            "LEFT JOIN people p ON p.id = c.person LEFT JOIN guarantees g ON g.id = c.guarantee "
            # The order of both tables' keys: nothing is sorted, and one entry is held at a time.
            "ORDER BY l.number, c.person"
        )
        head = b""
        entries = groupby(self.connection.stream(query), lambda row: row[:5])
        for place, ((number, moment, kind, content, link), rows) in enumerate(entries, 1):
            charges = [row[5:] for row in rows if row[7] is not None]
            # A charge of nobody, or for nothing that is known: somebody edited those tables.
            if any(who is None or promise is None for who, promise, _ in charges):
                yield place, b"", False
                return
            head = Entry(number, moment, kind, content, charges).link(self.key, head)
            yield number, head, head == link and number == place

    def last_act(self, kind: str) -> int:
        """The number of the last entry of a kind; 0 where there is none."""
        rows = self._rows("SELECT max(number) FROM log WHERE kind = ?", kind)
        return int(rows[0][0] or 0) if rows else 0

    def sums_agree(self) -> bool:
        """Whether the running sums are those of the log."""
        since = "SELECT person, guarantee, sum(releases) FROM charges WHERE entry > ?"
        return all(
            self._agree(f"{since} GROUP BY person, guarantee", start, table)
            # No entry has the number 0: that is all of the log.
            for table, start in (("totals", 0), ("windows", self.last_act("day")))
        )

    def _agree(self, log_sums: str, start: int, table: str) -> bool:
        if table == "windows" and start == 0:
            return not self._rows("SELECT 1 FROM windows LIMIT 1")
        sums = f"SELECT person, guarantee, releases FROM {table}"
        both = (f"{log_sums} EXCEPT {sums}", f"{sums} EXCEPT {log_sums}")
        return not any(
            self._rows(f"SELECT * FROM ({query}) AS difference LIMIT 1", start) for query in both
        )

    # ---- releases ----

    def find(self, names: Iterable[bytes]) -> dict[bytes, StoredRelease]:
        rows = self._among("SELECT name, vector, person FROM releases WHERE name", names)
        return {name: StoredRelease(vector, person) for name, vector, person in rows}

    def names_among(self, names: Iterable[bytes]) -> set[bytes]:
        """Those of the names under which something is stored; the vectors are not read."""
        return {name for (name,) in self._among("SELECT name FROM releases WHERE name", names)}

    def keep(self, rows: Iterable[tuple[bytes, int, str, bytes]]) -> None:
        """Store (name, person, run, vector); a name that is there is never replaced."""
        query = "INSERT INTO releases (name, person, run, vector) VALUES (?, ?, ?, ?)"
        self._write_many(query, list(rows))

    def releases_of(self, run: str) -> int:
        rows = self._rows("SELECT count(*) FROM releases WHERE run = ?", run)
        return int(rows[0][0]) if rows else 0

    def forget(self, run: str) -> None:
        self._write("DELETE FROM releases WHERE run = ?", run)

    # ---- requests ----

    def requests(self, names: Iterable[bytes]) -> dict[bytes, StoredRequest]:
        """How the requests among these names were answered."""
        query = "SELECT name, digest, charged FROM requests WHERE name"
        rows = list(self._among(query, names))
        query = "SELECT request, place, release FROM answers WHERE request"
        answers = sorted(self._among(query, [name for name, *_ in rows]))
        releases: dict[bytes, list[bytes]] = {name: [] for name, *_ in rows}
        for request, _, release in answers:
            releases[request].append(release)
        return {
            name: StoredRequest(digest, charged, tuple(releases[name]))
            for name, digest, charged in rows
        }

    def add_requests(self, requests: Mapping[bytes, StoredRequest]) -> None:
        self._write_many(
            "INSERT INTO requests VALUES (?, ?, ?)",
            [(name, request.digest, request.charged) for name, request in requests.items()],
        )
        self._write_many(
            "INSERT INTO answers VALUES (?, ?, ?)",
            [
                (name, place, release)
                for name, request in requests.items()
                for place, release in enumerate(request.names)
            ],
        )

    # ---- API keys ----

    def add_key(self, row: KeyRow) -> None:
        self._write("INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)

    def all_keys(self) -> list[KeyRow]:
        return [KeyRow(*row) for row in self._rows(f"{_KEY_ROWS} ORDER BY made, id")]

    def has_keys(self) -> bool:
        return bool(self._rows("SELECT 1 FROM keys LIMIT 1"))

    def key_of_digest(self, digest: bytes) -> KeyRow | None:
        rows = self._rows(f"{_KEY_ROWS} WHERE digest = ?", digest)
        return KeyRow(*rows[0]) if rows else None

    def revoke_key(self, key: str, moment: str) -> int:
        """Write down when a key ended; 0 where there is none, or it ended before."""
        return self._write(
            "UPDATE keys SET revoked = ?, sealed_subject = NULL WHERE id = ? AND revoked IS NULL",
            moment,
            key,
        )

    def revoke_keys_of(self, pseudonym: bytes, moment: str) -> int:
        return self._write(
            "UPDATE keys SET revoked = coalesce(revoked, ?), sealed_subject = NULL "
            "WHERE person = ?",
            moment,
            pseudonym,
        )


def keyed_hash(key: bytes, *parts: bytes) -> bytes:
    # Each part goes in with its length: "ab" + "c" and "a" + "bc" must not share a hash.
    unambiguous = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(key, unambiguous, "sha256")


def _text(value: bytes | str) -> str:
    # SQLite gives back what was written, and who edits the file by hand writes texts.
    return value if isinstance(value, str) else bytes(value).decode()
