"""A judge process: ``bootstrap.py pytest_rsi.judge_main FD ...`` runs one suite and reports over descriptor ``FD``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_rsi.process import open_channel
from pytest_rsi.session import JudgeSession
from pytest_rsi.task import PACKAGE, tree


def main() -> int:
    """Run the suite of the job's task with the arguments given, and return pytest's exit code."""
    channel = open_channel(int(sys.argv[1]))
    session = JudgeSession(channel)
    root = tree()
    # Only this configuration and the tree's own conftest are read, whatever folder this was started in.
    ours = [
        "-c",
        str(PACKAGE / "judge.ini"),
        "--rootdir",
        str(root),
        "--confcutdir",
        str(root),
        "-p",
        "no:cacheprovider",
    ]
    ours += ["-p", "pytest_rsi.plugin", "-p", "pytest_benchmark.plugin", "--import-mode=importlib"]
    module = str(session.task.module.relative_to(root))
    status = pytest.main([*ours, *sys.argv[2:], str(Path(root) / module)], plugins=[session])
    channel.send("finished", {"exit_status": int(status)})
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
