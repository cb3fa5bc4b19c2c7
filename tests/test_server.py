from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

import psutil
import pytest

from pytest_rsi.server import Server, ServerError, new_launch

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rsi.target import Target
    from pytest_rsi.task import Task


def launch(task: Task, target: Target, folder: Path) -> Server:
    started = new_launch(folder)
    target.lay_out(target.base, started.tree)
    return Server(task, started)


def get(server: Server) -> dict[str, object]:
    with urllib.request.urlopen(f"{server.url}/health", timeout=5) as answer:  # noqa: S310
        body: dict[str, object] = json.load(answer)
        return body


def test_a_server_sees_a_plain_environment_and_dies_with_all_it_started(
    stub: Task, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p evil")

    async def use() -> list[psutil.Process]:
        async with launch(stub, target, tmp_path) as server:
            environment = get(server)["environment"]
            assert isinstance(environment, dict)
            assert set(environment) <= {
                "PATH",
                "LANG",
                "HOME",
                "TMPDIR",
                "OPENBLAS_CORETYPE",
                "OPENBLAS_L2_SIZE",
                "LC_CTYPE",
            }
            assert not any(
                "rsi" in f"{name}={value}".lower()
                for name, value in environment.items()
                if name != "HOME" and name != "TMPDIR"
            )
            return psutil.Process(server.keeper_pid).children(recursive=True)

    family = asyncio.run(use())
    assert len(family) >= 3  # the server and two sleepers, one of them an orphan in a session of its own
    assert not [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def test_a_frozen_server_does_not_run_and_a_thawed_one_does(stub: Task, target: Target, tmp_path: Path) -> None:
    async def use() -> None:
        async with launch(stub, target, tmp_path) as server:
            family = psutil.Process(server.keeper_pid).children(recursive=True)
            server.freeze()
            assert {process.status() for process in family} <= {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
            server.thaw()
            assert psutil.STATUS_STOPPED not in {process.status() for process in family}
            assert get(server)["status"] == "healthy"

    asyncio.run(use())


@pytest.mark.parametrize(
    ("main", "complaint"),
    [
        ("raise SystemExit('no model')", "exited before it was ready"),
        ("import time; print('\\x1b[2Jloading', flush=True); time.sleep(100)", "not ready within 1 s"),
    ],
)
def test_a_server_that_does_not_start_shows_its_log(
    stub: Task, target: Target, tmp_path: Path, main: str, complaint: str
) -> None:
    quick = stub.model_copy(update={"server": stub.server.model_copy(update={"start_timeout_s": 1.0})})
    server = launch(quick, target, tmp_path)
    (server.launch.tree / "app/__main__.py").write_text(main)

    async def start() -> None:
        async with server:
            pass

    with pytest.raises(ServerError) as caught:
        asyncio.run(start())
    assert complaint in str(caught.value)
    assert str(server.launch.log) in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_killed_server_is_noticed(stub: Task, target: Target, tmp_path: Path) -> None:
    async def use() -> None:
        async with launch(stub, target, tmp_path) as server:
            pid = get(server)["pid"]
            assert isinstance(pid, int)
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)
            with pytest.raises(ServerError, match="server died"):
                server.freeze()

    asyncio.run(use())


@pytest.mark.parametrize("victim", ["judge", "keeper"])
def test_nothing_is_left_when_the_judge_or_the_keeper_is_killed(
    stub: Task, target: Target, tmp_path: Path, victim: str
) -> None:
    script = tmp_path / "judge.py"
    script.write_text(
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from pytest_rsi.server import Server, new_launch\nfrom pytest_rsi.target import Target\n"
        "from pytest_rsi.task import read_task\n"
        "async def main():\n"
        f"    launch = new_launch(Path({str(tmp_path)!r}))\n"
        f"    Target(Path({str(target.repository)!r}), {target.base!r}).lay_out({target.base!r}, launch.tree)\n"
        f"    async with Server(read_task(Path({str(stub.folder / 'task.toml')!r})), launch) as server:\n"
        "        print(server.keeper_pid, flush=True)\n"
        "        await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    judge = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert judge.stdout is not None
        keeper = psutil.Process(int(judge.stdout.readline()))
        server = keeper.children()[0]
        family = [keeper, *keeper.children(recursive=True)]
        (judge if victim == "judge" else keeper).kill()
        watched = family if victim == "judge" else [keeper, server]
        gone, alive = psutil.wait_procs(watched, timeout=10)
        assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
        assert gone
    finally:
        judge.kill()
        judge.wait()
        judge.stdout.close()
        for process in family:
            if process.is_running():
                process.kill()
