"""Runs one server so that nothing it starts outlives the judge. Executed by path, alone: standard library only.

``keeper.py COMMAND...`` starts the command in a session of its own, as the reaper of all its orphans, and ends every
descendant when its standard input closes, which happens when whoever started it stops it, dies or is killed.
What the server prints goes to the keeper's standard error. Signal numbers arrive as single bytes on standard input: the
keeper sends them to every descendant and answers with one byte when all have taken it. Its exit status is the server's.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
STATE_OF = {signal.SIGSTOP: "Tt", signal.SIGCONT: "RSD"}
SETTLE_S = 2.0


def parents() -> dict[int, tuple[int, str]]:
    """Return (parent pid, state) of every process, by pid."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  (pathlib would double the start-up time)
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
                found[int(name)] = (int(fields[1]), fields[0])
    return found


def descendants() -> dict[int, str]:
    """Return the state of every living descendant of this process, by pid."""
    table, mine, grew = parents(), {os.getpid()}, True
    while grew:
        more = {pid for pid, (parent, _) in table.items() if parent in mine} - mine
        mine |= more
        grew = bool(more)
    return {pid: table[pid][1] for pid in mine if pid in table and pid != os.getpid() and table[pid][1] not in "ZX"}


def send(number: int) -> None:
    """Send a signal to every descendant until all show it: new ones may appear while it is being sent."""
    wanted, deadline = STATE_OF.get(signal.Signals(number), ""), time.monotonic() + SETTLE_S
    while time.monotonic() < deadline:
        left = {pid for pid, state in descendants().items() if state not in wanted or not wanted}
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if not left:
            return
        time.sleep(0.002)


def main() -> int:
    """Keep one server; return its exit status."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    waker, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    server = subprocess.Popen(
        sys.argv[1:],
        stdin=subprocess.DEVNULL,
        stdout=2,
        start_new_session=True,
        # Should this keeper itself be killed, the server goes with it. One thread here: nothing is held over the fork.
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
    )
    try:
        while server.poll() is None:
            ready, _, _ = select.select([0, waker], [], [])
            if waker in ready:
                os.read(waker, 4096)
            if 0 in ready:
                number = os.read(0, 1)
                if not number:
                    break
                send(number[0])
                os.write(1, number)
    finally:
        send(signal.SIGKILL)
    status = server.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
