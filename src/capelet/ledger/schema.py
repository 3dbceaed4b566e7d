"""The tables of a store, written once for both databases; a dialect names its types.

- `facts`: the key, the budget, the day of a budget that refills;
- `people`: a keyed pseudonym for each person, and the name until the person is erased; a service
  never writes a name;
- `totals`: running sums of releases by person and guarantee, so that a charge costs the same
  whatever was charged before; `windows` the same since the day began, for a budget that refills;
- `log` and `charges`: every act in order (charges, changes of the budget, days, erasures), each
  with a keyed hash over itself and the one before: a chain, whose head commits to all of it;
- `releases`: the vectors that were paid for, by name;
- `requests` and `answers`: which releases answered a request with an idempotency key;
- `keys`: keyed hashes of API keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from capelet.errors import OutputError

# The form of the tables, and the only one that is read. Raised with every change of it.
VERSION = 3

TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value {bytes} NOT NULL);
CREATE TABLE guarantees (
    id {number}, content TEXT NOT NULL UNIQUE, epsilon {real} NOT NULL);
CREATE TABLE people (
    id {number}, pseudonym {bytes} NOT NULL UNIQUE, fold {bytes} NOT NULL, name TEXT);
CREATE INDEX people_by_fold ON people (fold);
CREATE TABLE totals (
    person {whole} NOT NULL, guarantee {whole} NOT NULL, releases {whole} NOT NULL,
    PRIMARY KEY (person, guarantee)) {by_key};
CREATE TABLE log (
    number {whole} PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, content TEXT NOT NULL,
    head {bytes} NOT NULL);
CREATE TABLE charges (
    entry {whole} NOT NULL, person {whole} NOT NULL, guarantee {whole} NOT NULL,
    releases {whole} NOT NULL, PRIMARY KEY (entry, person)) {by_key};
CREATE TABLE releases (
    name {bytes} PRIMARY KEY, person {whole} NOT NULL, run TEXT NOT NULL, vector {bytes} NOT NULL);
CREATE INDEX releases_by_person ON releases (person);
CREATE INDEX releases_by_run ON releases (run);
CREATE TABLE windows (
    person {whole} NOT NULL, guarantee {whole} NOT NULL, releases {whole} NOT NULL,
    PRIMARY KEY (person, guarantee)) {by_key};
CREATE TABLE requests (
    name {bytes} PRIMARY KEY, digest {bytes} NOT NULL, charged {whole} NOT NULL);
CREATE TABLE answers (
    request {bytes} NOT NULL, place {whole} NOT NULL, release {bytes} NOT NULL,
    PRIMARY KEY (request, place)) {by_key};
CREATE INDEX answers_by_release ON answers (release);
CREATE TABLE keys (
    id TEXT PRIMARY KEY, digest {bytes} NOT NULL UNIQUE, label TEXT NOT NULL, person {bytes},
    sealed_subject {bytes}, is_operator {whole} NOT NULL, made TEXT NOT NULL, revoked TEXT);
"""

TABLE_NAMES = tuple(re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", TABLES))


def statements(types: Mapping[str, str]) -> Iterator[str]:
    """The statements that make the tables in a dialect."""
    for statement in TABLES.format_map(types).split(";"):
        if statement.strip():
            yield statement


def check_version(place: str, version: int) -> None:
    """Refuse a store whose tables have another form."""
    if version != VERSION:
        raise OutputError(
            f"the ledger {place!r} is a store of version {version}, and this Capelet reads version "
            f"{VERSION}; use the Capelet that wrote it, or begin a new ledger"
        )
