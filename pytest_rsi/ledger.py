"""The append-only record of every run, candidate, sample, verdict and baseline, in one SQLite file.

Every row is an event and holds the digest of the row before it, so that a change after the fact shows. All state (the
current baseline, what was tried, the noise floor) is read back from the events, so that a killed run loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pytest_rsi.stats import NoiseFloor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS event (
    seq INTEGER PRIMARY KEY, time TEXT NOT NULL, run TEXT NOT NULL, task TEXT NOT NULL, kind TEXT NOT NULL,
    body TEXT NOT NULL, digest TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS event_kind ON event (task, kind, seq);
CREATE TRIGGER IF NOT EXISTS event_no_update BEFORE UPDATE ON event BEGIN SELECT RAISE(ABORT, 'append only'); END;
CREATE TRIGGER IF NOT EXISTS event_no_delete BEFORE DELETE ON event BEGIN SELECT RAISE(ABORT, 'append only'); END;
"""


class LedgerError(RuntimeError):
    """The ledger cannot be read or written; the message is one line that names the file."""


@dataclass(frozen=True, slots=True)
class Event:
    """One row: what happened (``kind``) in which run of which task."""

    seq: int
    time: str
    run: str
    task: str
    kind: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The commit that candidates are judged against, and the confirmed candidate that made it (empty: the task's)."""

    commit: str
    candidate: str


class Ledger:
    """A ledger file, opened for the length of one run."""

    def __init__(self, path: Path, task: str) -> None:
        self.path = path
        self.task = task
        self.run = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            ignore = path.parent / ".gitignore"
            if path.parent.name == ".rsi" and not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            self._db = sqlite3.connect(path, timeout=30, isolation_level=None)
            self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;" + _SCHEMA)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA_VERSION):
                raise LedgerError(f"ledger {path} has schema {version}, expected {SCHEMA_VERSION}; use another file")
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"ledger {path}: {error}") from None

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def append(self, kind: str, body: dict[str, Any]) -> int:
        """Append an event, durably, and return its number.

        Raises:
            LedgerError: it could not be written (full disk, lost permission).
        """
        text = json.dumps(body, allow_nan=False, sort_keys=True)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            with closing(self._db.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    last = cursor.execute("SELECT seq, digest FROM event ORDER BY seq DESC LIMIT 1").fetchone()
                    seq, before = (last[0] + 1, last[1]) if last else (1, "")
                    row = (seq, now, self.run, self.task, kind, text)
                    cursor.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, _digest(before, row)))
                    cursor.execute("COMMIT")
                except BaseException:
                    # A full disk has rolled back already.
                    with suppress(sqlite3.OperationalError):
                        cursor.execute("ROLLBACK")
                    raise
        except sqlite3.Error as error:
            raise LedgerError(f"ledger {self.path}: cannot record {kind!r}: {error}") from None
        return seq

    def events(self, *kinds: str) -> Iterator[Event]:
        """Yield this task's events of some kinds, oldest first."""
        marks = ", ".join("?" * len(kinds))
        rows = self._db.execute(
            f"SELECT seq, time, run, task, kind, body FROM event WHERE task = ? AND kind IN ({marks}) ORDER BY seq",  # noqa: S608
            (self.task, *kinds),
        )
        for seq, time, run, task, kind, body in rows.fetchall():
            yield Event(seq, time, run, task, kind, json.loads(body))

    def last(self, kind: str, **wanted: Any) -> Event | None:  # noqa: ANN401  (compared with JSON values)
        """Return the newest event of a kind whose body has the wanted values."""
        found = None
        for event in self.events(kind):
            if all(event.body.get(key) == value for key, value in wanted.items()):
                found = event
        return found

    def baseline(self, base: str) -> Baseline:
        """Return the newest confirmed baseline that grew from a commit of the target, or that commit itself."""
        event = self.last("baseline", root=base)
        return Baseline(event.body["commit"], event.body["candidate"]) if event else Baseline(base, "")

    def floor(self, commit: str, fingerprint: str) -> NoiseFloor | None:
        """Return the newest noise floor measured for a baseline, or for what it grew from, on this machine."""
        event = self.last("floor", fingerprint=fingerprint, commit=commit) or self.last(
            "floor", fingerprint=fingerprint
        )
        return NoiseFloor(**event.body["floor"]) if event else None

    def check(self) -> str | None:
        """Return what is wrong with the chain of digests, or ``None``."""
        before = ""
        rows = self._db.execute("SELECT seq, time, run, task, kind, body, digest FROM event ORDER BY seq")
        for number, (*row, digest) in enumerate(rows, start=1):
            if row[0] != number or digest != _digest(before, tuple(row)):
                return f"event {row[0]} does not follow from the one before it"
            before = digest
        return None


def ledger_path(given: str | None, folder: Path) -> Path:
    """Return the file that ``--rsi-ledger`` names: a path or ``sqlite:///PATH``; ``.rsi/ledger.sqlite`` by default.

    Raises:
        LedgerError: it is a URL of another kind.
    """
    if given is None:
        return folder / ".rsi" / "ledger.sqlite"
    if "://" in given and not given.startswith("sqlite:///"):
        raise LedgerError(f"--rsi-ledger {given!r}, expected a file or sqlite:///FILE")
    return (folder / given.removeprefix("sqlite:///")).resolve()


def _digest(before: str, row: tuple[Any, ...]) -> str:
    return hashlib.sha256(json.dumps([before, *row]).encode()).hexdigest()
