"""The git command with a configuration that nobody else can reach into."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.symlinks": "false",
    "core.autocrlf": "false",
    "core.fsmonitor": "false",
    "core.attributesFile": "/dev/null",
    "protocol.file.allow": "user",
    "gc.auto": "0",
    "init.defaultBranch": "main",
    "commit.gpgSign": "false",
}

_IDENTITY = {
    "GIT_AUTHOR_NAME": "pytest-rsi",
    "GIT_AUTHOR_EMAIL": "pytest-rsi@localhost",
    "GIT_COMMITTER_NAME": "pytest-rsi",
    "GIT_COMMITTER_EMAIL": "pytest-rsi@localhost",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}


class GitError(RuntimeError):
    """A git command failed; the message is its first line of complaint."""


def git(*args: str, cwd: Path, stdin: bytes | None = None, env: Mapping[str, str] | None = None) -> bytes:
    """Run git in ``cwd`` without system or user configuration, hooks or prompts, and return its stdout.

    Author, committer and dates are fixed, so that equal content gives equal commits on every machine.

    Raises:
        GitError: git is missing or its exit status is not zero.
    """
    clean = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "HOME": "/nonexistent"}
    clean |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"} | _IDENTITY
    config = [part for key, value in _CONFIG.items() for part in ("-c", f"{key}={value}")]
    try:
        done = subprocess.run(
            ["git", *config, *args], cwd=cwd, input=stdin, env=clean | dict(env or {}), capture_output=True, check=False
        )
    except FileNotFoundError:
        if not cwd.is_dir():
            raise GitError(f"folder {cwd} is missing") from None
        raise GitError("git is not installed; install it and try again") from None
    if done.returncode:
        complaint = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        raise GitError(complaint[0].removeprefix("error: ").removeprefix("fatal: "))
    return done.stdout
