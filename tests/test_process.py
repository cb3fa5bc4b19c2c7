"""What a judge process must prove, and what no exit status can replace."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rsi import process
from pytest_rsi.process import JudgeProcess, Receipts
from pytest_rsi.supervisor import exit_code

if TYPE_CHECKING:
    from collections.abc import Callable

HELLO = (
    "import json, socket, sys\n"
    "link = socket.socket(fileno=int(sys.argv[1])).makefile('rwb')\n"
    "nonce = json.loads(link.readline())['nonce']\n"
    "def send(kind, body, nonce=nonce):\n"
    "    link.write(json.dumps([nonce, kind, body]).encode() + b'\\n'); link.flush()\n"
)


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Receipts]:
    """Return a function that runs a process in the judge's place."""

    def run(script: str) -> Receipts:
        monkeypatch.setattr(process, "hardened_command", lambda module, *args: [sys.executable, "-c", script, *args])
        heard: list[tuple[str, dict[str, Any]]] = []
        return JudgeProcess([], {}, lambda kind, body: heard.append((kind, body))).run()

    return run


def test_a_full_report_passes(judge: Callable[[str], Receipts]) -> None:
    receipts = judge(
        HELLO + "send('collected', {'items': ['a']}); send('report', {'item': 'a', 'outcome': 'passed'})\n"
        "send('finished', {'exit_status': 0})\n"
    )
    assert receipts.complete
    assert exit_code(receipts) == 0


@pytest.mark.parametrize(
    "script",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        HELLO + "send('collected', {'items': ['a', 'b']}); send('report', {'item': 'a', 'outcome': 'passed'})\n"
        "send('finished', {'exit_status': 0})\n",
        HELLO + "send('collected', {'items': ['a']}); send('report', {'item': 'a', 'outcome': 'passed'})\n",
        HELLO + "send('finished', {'exit_status': 0}, nonce='guessed')\n",
        HELLO + "link.write(b'not json\\n'); link.flush()\n",
        HELLO + "send('error', {'text': 'the baseline died'}); send('finished', {'exit_status': 0})\n",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_exit_status_zero_alone_never_passes(judge: Callable[[str], Receipts], script: str) -> None:
    assert exit_code(judge(script)) == 3


def test_a_failure_stays_a_failure(judge: Callable[[str], Receipts]) -> None:
    receipts = judge(
        HELLO + "send('collected', {'items': ['a']}); send('report', {'item': 'a', 'outcome': 'failed'})\n"
        "send('finished', {'exit_status': 1}); sys.exit(1)\n"
    )
    assert receipts.complete
    assert exit_code(receipts) == 1
