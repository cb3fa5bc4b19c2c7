"""The whole chain on the real voice, shortened: loop, judge, clean room, ledger; killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_rsi.cleanroom import find_bwrap
from pytest_rsi.task import tree

ROOT = Path(__file__).resolve().parent.parent
PATCHES = ROOT / "suites/tiny_tts/patches"
HONEST = ("0006-tensor-roundtrip", "0005-idle-spin", "0007-stage-overlap", "0008-small-launches", "0009-unused-compute")
SHORTER = {
    "requests = 6": "requests = 4",
    "blocks = 2": "blocks = 1",
    "max_words = 8": "max_words = 6",
    "floor_pairs = 8": "floor_pairs = 4",
    "max_pairs = 10": "max_pairs = 6",
    "foreign_cpu_max = 0.3": "foreign_cpu_max = 9.0",
}

pytestmark = pytest.mark.slow


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Copy the package with its tree, and make the task's run short: what is tested is the chain, not the figures."""
    copy = tmp_path / "house"
    ignored = shutil.ignore_patterns("__pycache__", "_tree")
    shutil.copytree(ROOT / "pytest_rsi", copy / "pytest_rsi", ignore=ignored)
    for part in ("suites", "fixtures", "guards", "faults", "audio_refs"):
        shutil.copytree(tree() / part, copy / part, ignore=ignored)
    shutil.copy(tree() / "conftest.py", copy)
    task = copy / "suites/tiny_tts/task.toml"
    text = task.read_text()
    for old, new in SHORTER.items():
        assert old in text
        text = text.replace(old, new)
    task.write_text(text)
    suite = copy / "suites/tiny_tts/test_tiny_tts.py"
    # Too few requests for a 95th percentile, and a busy machine: the latency guards have tests of their own.
    lines = [line for line in suite.read_text().splitlines() if "latency" not in line]
    suite.write_text("\n".join(lines) + "\n")
    return copy


def start(house: Path, folder: Path, *args: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(house)}
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "--rsi-task", "tiny_tts", *args],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(house: Path, folder: Path, *args: str) -> tuple[int, str]:
    with start(house, folder, *args) as process:
        out, _ = process.communicate(timeout=900)
        return process.returncode, out


def events(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(folder / ".rsi/ledger.sqlite")) as db:
        rows = db.execute("SELECT kind, body FROM event ORDER BY seq").fetchall()
    return [{"kind": kind, **json.loads(body)} for kind, body in rows if kind in kinds]


def wait_for(folder: Path, kind: str, process: subprocess.Popen[str], **wanted: object) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        try:
            found = [event for event in events(folder, kind) if all(event.get(k) == v for k, v in wanted.items())]
        except sqlite3.Error:
            found = []
        if found:
            return
        time.sleep(0.2)
    pytest.fail(f"no {kind} {wanted} within 300 s")


def family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def end(victim: psutil.Process, relatives: list[psutil.Process]) -> None:
    victim.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(relatives, timeout=20)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def find(process: subprocess.Popen[str], word: str) -> psutil.Process:
    """Return a descendant whose command has the word in it; servers come and go with launch pairs."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for relative in family(process):
            try:
                if any(word in part for part in relative.cmdline()):
                    return relative
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)
    pytest.fail(f"no process {word!r} within 60 s")


def kill_a_server(process: subprocess.Popen[str]) -> None:
    """Kill a server and leave its keeper; between launch pairs a keeper may have none, then the next one is taken."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(psutil.NoSuchProcess, IndexError):
            find(process, "keeper.py").children()[0].send_signal(signal.SIGKILL)
            return
    pytest.fail("no server within 60 s")


def all_honest(folder: Path) -> None:
    """Write a folder of three patches: one against policy, one that cuts tails, and all honest ones as one."""
    folder.mkdir()
    shutil.copy(PATCHES / "0014-conftest.patch", folder / "0001-conftest.patch")
    shutil.copy(PATCHES / "0003-cut-tail.patch", folder / "0002-cut-tail.patch")
    scratch = folder.parent / "scratch"
    shutil.copytree(ROOT / "suites/tiny_tts/engine", scratch, ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *command], cwd=scratch, check=True)
    for name in HONEST:
        subprocess.run([*git, "apply", str(PATCHES / f"{name}.patch")], cwd=scratch, check=True)
    diff = subprocess.run([*git, "diff"], cwd=scratch, check=True, capture_output=True, text=True).stdout
    (folder / "0003-all-five.patch").write_text(f"Title: All five\nClass: stage-overlap\n\n{diff}")


def test_a_loop_killed_three_times_ends_as_if_it_had_not_been(house: Path, tmp_path: Path) -> None:
    patches, folder = tmp_path / "patches", tmp_path / "work"
    all_honest(patches)
    args = ("--rsi-agent", f"patches:{patches}")

    with start(house, folder, *args) as loop:
        wait_for(folder, "pair", loop, candidate="0002-cut-tail")
        end(find(loop, "pytest_rsi.supervisor"), family(loop))
        loop.communicate()
    assert [event["candidate"] for event in events(folder, "judged")] == ["0001-conftest"]

    with start(house, folder, *args) as loop:
        wait_for(folder, "pair", loop, candidate="0003-all-five")
        kill_a_server(loop)
        loop.communicate(timeout=300)
    # The candidate's server that dies is its fault; the baseline's death is no verdict at all. Nothing passed.
    last = events(folder, "judged")[-1]
    if last["candidate"] == "0003-all-five":
        assert not last["accepted"]
        assert {reason["code"] for reason in last["reasons"]} == {"smoke"}
        # The same change once more, as another patch.
        again = (patches / "0003-all-five.patch").read_text().replace("two jobs at once.", "two jobs at a time.")
        (patches / "0003-all-five.patch").write_text(again)

    with start(house, folder, *args) as loop:
        wait_for(folder, "judged", loop, candidate="0003-all-five", accepted=True)
        time.sleep(8)
        room = find(loop, "pytest_rsi.judge_main")
        end(room, [room, *room.children(recursive=True)])
        loop.communicate(timeout=300)
        assert loop.returncode == 3
    assert not events(folder, "clean-room", "baseline")

    code, out = run(house, folder, *args)
    assert code == 0, out
    assert [event["candidate"] for event in events(folder, "baseline")] == ["0003-all-five"]
    room = events(folder, "clean-room")[-1]
    assert room["accepted"]
    assert room["held_out"]
    assert room["isolation"] == ("bwrap" if find_bwrap() else "process")
    assert next(speed for speed in room["speeds"] if speed["workload"] == "all")["low"] > 1.03
    codes = {event["candidate"]: {reason["code"] for reason in event["reasons"]} for event in events(folder, "judged")}
    assert codes["0001-conftest"] == {"policy"}
    assert "guard:tail" in codes["0002-cut-tail"]
    # Nothing was judged again that had a verdict.
    names = [event["candidate"] for event in events(folder, "judged")]
    assert names.count("0001-conftest") == names.count("0002-cut-tail") == 1
    for text in ("0003-all-five", "confirmed", "refused"):
        assert text in out

    # The same command has nothing left to do, and says so; what was confirmed is what candidates now apply on.
    code, out = run(house, folder, *args)
    assert (code, "confirmed already" in out) == (0, True)
    code, out = run(house, folder, "--rsi-candidate", str(PATCHES / "0005-idle-spin.patch"), "-k", "test_patch")
    assert code == 1
    assert "does not apply" in out


AGENT = r"""
test -s "$RSI_BRIEF" && test -e "$RSI_HISTORY" && test "$RSI_DEADLINE" -gt 0 && cd "$RSI_WORKSPACE" || exit 9
case "$(git log --oneline | wc -l)$(wc -l < "$RSI_HISTORY")" in
  10) echo nothing to do ;;
esac
echo 'import os' > sitecustomize.py
echo '{"title": "Help python", "class": "idle-spin", "rationale": "starts faster"}'
"""


def test_a_command_agent_is_briefed_and_its_workspace_judged(house: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    script = tmp_path / "agent.sh"
    script.write_text(AGENT)
    code, out = run(house, folder, "--rsi-agent", f"sh {script}", "--rsi-rounds", "1")
    assert code == 1, out
    proposed = events(folder, "candidate")
    assert [(event["title"], event["overhead_class"]) for event in proposed] == [("Help python", "idle-spin")]
    assert [reason["code"] for reason in events(folder, "judged")[0]["reasons"]] == ["policy"]
    brief = next((folder / ".rsi/turns").glob("*/brief.md")).read_text()
    assert "tinytts/config.py" in brief

    # An agent that does nothing, and one that hangs, are no candidates and no crash.
    code, out = run(house, folder, "--rsi-agent", "true", "--rsi-rounds", "2")
    assert (code, out.count("left the workspace as it was"), "Traceback" in out) == (1, 2, False), out
    code, out = run(house, folder, "--rsi-agent", "sleep 600", "--rsi-budget", "3s")
    assert (code, "ran past its deadline" in out, "Traceback" in out) == (1, True, False), out

    # The same proposal again is recognised, and costs a round and no measurement.
    code, out = run(house, folder, "--rsi-agent", f"sh {script}", "--rsi-rounds", "2")
    assert (code, out.count("judged before on this baseline"), "Traceback" in out) == (1, 2, False), out
    assert len(events(folder, "judged")) == 1
    history = next((folder / ".rsi/turns").glob("*-0002/history.jsonl")).read_text().splitlines()
    assert json.loads(history[0])["lesson"].startswith("rejected by policy")
