from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pytest_rsi.ledger import Ledger, LedgerError, ledger_path

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".rsi" / "ledger.sqlite"


def test_events_come_back_in_order_and_by_task(file: Path) -> None:
    with closing(Ledger(file, "one")) as one, closing(Ledger(file, "two")) as two:
        one.append("run", {"n": 1})
        two.append("run", {"n": 2})
        one.append("verdict", {"n": 3})
        assert [event.body["n"] for event in one.events("run", "verdict")] == [1, 3]
        assert one.check() is None
    assert (file.parent / ".gitignore").read_text() == "*\n"


def test_the_newest_confirmed_baseline_counts(file: Path) -> None:
    with closing(Ledger(file, "one")) as ledger:
        assert ledger.baseline("root").commit == "root"
        ledger.append("baseline", {"root": "root", "commit": "first", "candidate": "0001"})
        ledger.append("baseline", {"root": "other", "commit": "elsewhere", "candidate": "0009"})
        ledger.append("baseline", {"root": "root", "commit": "second", "candidate": "0002"})
        assert (ledger.baseline("root").commit, ledger.baseline("root").candidate) == ("second", "0002")


def test_rows_cannot_be_changed_and_a_forged_file_shows(file: Path) -> None:
    with closing(Ledger(file, "one")) as ledger:
        for number in range(3):
            ledger.append("run", {"n": number})
        with closing(sqlite3.connect(file)) as db:
            for attempt in ("UPDATE event SET body = '{}' WHERE seq = 2", "DELETE FROM event WHERE seq = 2"):
                with pytest.raises(sqlite3.IntegrityError, match="append only"):
                    db.execute(attempt)
            db.rollback()
            db.execute("DROP TRIGGER event_no_update")
            db.execute("UPDATE event SET body = '{}' WHERE seq = 2")
            db.commit()
        assert ledger.check() == "event 2 does not follow from the one before it"


def test_nothing_that_was_appended_is_lost_when_the_writer_is_killed(file: Path) -> None:
    script = (
        "import sys, itertools; from pathlib import Path; from pytest_rsi.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]), 'one')\n"
        "for n in itertools.count():\n    ledger.append('run', {'n': n})\n    print(n, flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, str(file)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    told = [int(writer.stdout.readline()) for _ in range(20)]
    os.kill(writer.pid, signal.SIGKILL)
    told += [int(line) for line in writer.stdout.read().split()]
    writer.wait()
    writer.stdout.close()
    with closing(Ledger(file, "one")) as ledger:
        kept = [event.body["n"] for event in ledger.events("run")]
        assert kept[: len(told)] == told
        assert ledger.check() is None
        ledger.append("run", {"n": -1})


def test_two_writers_take_turns(file: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from pytest_rsi.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]), 'one')\n"
        "for n in range(50): ledger.append('run', {'n': n})\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(file)]) for _ in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    with closing(Ledger(file, "one")) as ledger:
        assert len(list(ledger.events("run"))) == 100
        assert ledger.check() is None


def test_what_cannot_be_a_ledger_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(LedgerError, match="text: file is not a database"):
        Ledger(tmp_path / "text", "one")
    with pytest.raises(LedgerError, match="expected a file or sqlite:///FILE"):
        ledger_path("postgres://host/db", tmp_path)
    assert ledger_path("sqlite:///x.sqlite", tmp_path) == tmp_path / "x.sqlite"
    with pytest.raises(LedgerError, match=r"Not a directory|File exists"):
        Ledger(tmp_path / "text" / "ledger.sqlite", "one")


def test_a_full_disk_is_one_line_and_loses_nothing(file: Path) -> None:
    with closing(Ledger(file, "one")) as ledger:
        ledger.append("run", {"n": 0})
        ledger._db.execute("PRAGMA max_page_count = 12")
        with pytest.raises(LedgerError, match="cannot record 'pair': database or disk is full"):
            ledger.append("pair", {"samples": "x" * 500_000})
        ledger._db.execute("PRAGMA max_page_count = 100000")
        ledger.append("run", {"n": 1})
        assert [event.body["n"] for event in ledger.events("run")] == [0, 1]
        assert ledger.check() is None
