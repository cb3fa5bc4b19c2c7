"""Private scratch folders that do not outlive their owner, even one that was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Servers see this name in their paths: it must say nothing about who started them.
PREFIX = "srv-"
_LOCK = ".lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder that is locked for as long as its owner lives, and remove it in the end."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    unlocked = folder / "unlocked"
    lock = os.open(unlocked, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Named only once it is locked: a sweep must not find it in between.
        unlocked.rename(folder / _LOCK)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def sweep() -> list[Path]:
    """Remove scratch folders whose owner was killed, and return them."""
    removed = []
    for file in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{_LOCK}"):
        try:
            lock = os.open(file, os.O_RDWR)
        except OSError:
            # Somebody else's, or gone meanwhile.
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(file.parent, ignore_errors=True)
            removed.append(file.parent)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
    return removed
