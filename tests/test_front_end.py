"""The command line as a user meets it, up to the point where a server would start."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

COLLECT = ("--rsi-task", "tiny_tts", "--collect-only", "-q")


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_unknown_task_lists_the_tasks(tmp_path: Path) -> None:
    done = run(tmp_path, "--rsi-task", "cosyvoice9")
    assert done.returncode == 4
    assert done.stderr.splitlines() == [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    assert "unknown task 'cosyvoice9'; --rsi-task takes one of: " in done.stderr
    assert "tiny_tts" in done.stderr


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (("--rsi-task", "tiny_tts", "-n", "2"), "leave out xdist's -n"),
        (("--rsi-candidate", "x.patch"), "--rsi-candidate needs --rsi-task"),
        (("--rsi-task", "tiny_tts", "--rsi-candidate", "missing.patch"), "'{folder}/missing.patch' is no file, folder"),
        (("--rsi-task", "tiny_tts", "--rsi-candidate", "empty"), "no *.patch or *.diff file in folder"),
        (("--rsi-task", "tiny_tts", "--rsi-agent", "patches:empty"), "no *.patch or *.diff file in folder"),
        (("--rsi-task", "tiny_tts", "--rsi-agent", " "), "--rsi-agent is empty"),
        (("--rsi-task", "tiny_tts", "--rsi-agent", "x", "--rsi-confirm", "y"), "exclude each other"),
        (("--rsi-task", "tiny_tts", "--rsi-rounds", "2"), "--rsi-rounds belongs to --rsi-agent"),
        (("--rsi-task", "tiny_tts", "--rsi-rounds", "0"), "'0', expected a whole number from 1 on"),
        (("--rsi-task", "tiny_tts", "--rsi-budget", "soon"), "expected a time such as 90s"),
        (("--rsi-task", "tiny_tts", "--rsi-confidence", "99"), "expected a number from 0.5 to below 1"),
        (("--rsi-task", "tiny_tts", "--rsi-min-speedup", "0.9"), "expected a ratio from 1 on"),
        (("--rsi-task", "tiny_tts", "--rsi-base", "main"), "--rsi-base names a revision of --rsi-target"),
        (("--rsi-task", "tiny_tts", "--rsi-confirm", "0042"), "'0042' is not in ledger"),
        (("--rsi-task", "tiny_tts", "--rsi-target", "empty"), "target of task 'tiny_tts'"),
        (("--rsi-task", "tiny_tts", "--rsi-ledger", "mysql://x"), "expected a file or sqlite:///FILE"),
        (("--rsi-task", "tiny_tts", "--rsi-isolation", "prayer"), "invalid choice: 'prayer'"),
        (("--rsi-task", "tiny_tts", "test_mine.py"), "--rsi-task chooses what is collected; leave out"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_4(tmp_path: Path, args: tuple[str, ...], complaint: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "test_mine.py").write_text("")
    done = run(tmp_path, *args)
    assert done.returncode == 4, done.stdout + done.stderr
    assert complaint.format(folder=tmp_path) in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_collect_only_lists_workloads_and_guards(tmp_path: Path) -> None:
    done = run(tmp_path, *COLLECT)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert {
        "test_throughput[offline]",
        "test_throughput[streaming]",
        "test_guard[wer]",
        "test_guard[latency-ttfa]",
    } <= set(names)
    assert not [name for name in names if name.startswith(("test_speedup", "test_patch", "test_known_answer"))]


def test_selection_works_as_in_pytest(tmp_path: Path) -> None:
    gate = run(tmp_path, *COLLECT, "-m", "guard").stdout
    assert "test_guard[parity]" in gate
    assert "test_throughput" not in gate
    one = run(tmp_path, *COLLECT, "-k", "streaming")
    assert [line for line in one.stdout.splitlines() if "::" in line] == [
        line for line in one.stdout.splitlines() if line.endswith("test_throughput[streaming]")
    ]
    assert run(tmp_path, *COLLECT, "-k", "nothing_like_it").returncode == 5


def test_candidates_parametrise_the_suite(tmp_path: Path) -> None:
    patches = tmp_path / "mine"
    patches.mkdir()
    diff = "--- a/tinytts/api.py\n+++ b/tinytts/api.py\n@@ -1 +1 @@\n-x\n+y\n"
    (patches / "0003-sleep.patch").write_text(f"Expect: rejected\nReason: policy\n{diff}")
    (patches / "0004-wake.patch").write_text(diff)
    names = run(tmp_path, *COLLECT, "--rsi-candidate", "mine").stdout
    for expected in ("test_throughput[streaming-0003-sleep]", "test_guard[wer-0004-wake]", "test_speedup[0004-wake]"):
        assert f"{expected}\n" in names
    assert "test_known_answer[0003-sleep]" in names
    assert "test_known_answer[0004-wake]" not in names


def test_nothing_of_the_tree_it_runs_in_is_read(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    spring = f"import pathlib; pathlib.Path({str(trap)!r}).write_text(__name__)\n"
    for name in (
        "conftest.py",
        "sitecustomize.py",
        "json.py",
        "numpy.py",
        "soundfile.py",
        "pytest_rsi.py",
        "suites.py",
    ):
        (tmp_path / name).write_text(spring)
    (tmp_path / "evil-1.0.dist-info").mkdir()
    (tmp_path / "evil-1.0.dist-info/entry_points.txt").write_text("[pytest11]\nevil = conftest\n")
    (tmp_path / "evil-1.0.dist-info/METADATA").write_text("Name: evil\nVersion: 1.0\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -k nothing\n")
    clean = run(tmp_path.parent, *COLLECT).stdout.splitlines()
    pytest_script = Path(sys.executable).with_name("pytest")
    done = subprocess.run(
        [pytest_script, *COLLECT], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    items = [line for line in done.stdout.splitlines() if "::" in line]
    assert items == [line for line in clean if "::" in line]
    assert not trap.exists(), trap.read_text()


def test_a_suite_without_a_task_is_refused() -> None:
    root = Path(__file__).parent.parent
    done = run(root, "suites/tiny_tts/test_tiny_tts.py")
    assert done.returncode == 4
    assert "run it as pytest --rsi-task TASK" in done.stderr + done.stdout


def test_the_plugin_adds_little_to_every_other_pytest(tmp_path: Path) -> None:
    heavy = {"numpy", "torch", "scipy", "pydantic", "aiohttp", "rich"}
    script = f"import sys, pytest_rsi.plugin; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

    def cost(*args: str) -> float:
        def once() -> float:
            began = time.perf_counter()
            run(tmp_path, "--version", "-p", "no:benchmark", *args)
            return time.perf_counter() - began

        return min(once() for _ in range(5))

    assert cost() / cost("-p", "no:rsi") < 1.5


def test_the_ledger_remembers_a_run_that_only_collected(tmp_path: Path) -> None:
    run(tmp_path, *COLLECT)
    assert (tmp_path / ".rsi/ledger.sqlite").exists()
    assert json.loads('"*"') + "\n" == (tmp_path / ".rsi/.gitignore").read_text()
