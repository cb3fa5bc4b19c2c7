"""What a patch may do, judged on its text and on the tree it makes, before anything of it runs."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_rsi.task import TargetTable

MAX_LITERAL_CHARS = 512
"""Longest run of base64-like characters that an added line may hold: data belongs in files, and files are reviewed."""
MAX_LITERAL_BITS = 4.5
"""Shannon entropy, in bits a character, above which a literal of 64 or more characters counts as packed data."""
MAX_LINE_CHARS = 2000

_LITERAL = re.compile(r"[A-Za-z0-9+/=_\\-]{64,}")
_FORBIDDEN_NAMES = (".git", ".gitattributes", ".gitmodules", ".gitignore", "sitecustomize.py", "usercustomize.py")
_FORBIDDEN_SUFFIXES = (".pth", ".so", ".pyc", ".pyd", ".dll")


@dataclass(frozen=True, slots=True)
class TreeChange:
    """One changed path of the resulting tree, as ``git diff-tree --raw`` gives it (``000000``: not there)."""

    old_mode: str
    new_mode: str
    path: str


def path_matches(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a path matches a glob pattern; ``*`` stays inside one folder, ``**/`` spans any number."""
    return any(_pattern(pattern).fullmatch(path) for pattern in patterns)


def _pattern(pattern: str) -> re.Pattern[str]:
    text = re.escape(pattern).replace(r"\*\*/", "(?:[^/]+/)*").replace(r"\*\*", ".*")
    return re.compile(text.replace(r"\*", "[^/]*").replace(r"\?", "[^/]"), re.DOTALL)


def check_text(diff: str, target: TargetTable) -> str | None:
    """Return why the text of a diff is refused, or ``None``: size, binary hunks, packed data, control characters."""
    size = len(diff.encode("utf-8", errors="surrogateescape"))
    if size > target.max_patch_bytes:
        return f"patch of {size} bytes, at most {target.max_patch_bytes} allowed"
    for line in diff.splitlines():
        if line.startswith(("GIT binary patch", "Binary files ")):
            return "binary hunk; only text may be patched"
        if line.startswith(("rename ", "copy ", "similarity index")):
            return "rename or copy of a file; write the change as plain hunks"
        if not line.startswith("+"):
            continue
        if len(line) > MAX_LINE_CHARS:
            return f"added line of {len(line)} characters, at most {MAX_LINE_CHARS} allowed"
        if any(unicodedata.category(char) in ("Cc", "Cf") and char != "\t" for char in line):
            return f"added line with control or invisible characters: {line[:60]!a}"
        packed = next((run for run in _LITERAL.findall(line) if _packed(run)), None)
        if packed:
            return f"added literal of {len(packed)} characters that looks like packed data: {packed[:24]}..."
    return None


def _packed(run: str) -> bool:
    if len(run) > MAX_LITERAL_CHARS:
        return True
    counts = Counter(run).values()
    return -sum(count / len(run) * math.log2(count / len(run)) for count in counts) > MAX_LITERAL_BITS


def check_tree(changes: list[TreeChange], tracked: Iterable[str], target: TargetTable) -> str | None:
    """Return why the tree that a patch makes is refused, or ``None``; the first offending path is named.

    ``tracked`` are the paths of the tree before the patch: a new path may not differ from one of them by case or
    Unicode form alone.
    """
    if not changes:
        return "patch changes nothing"
    if len(changes) > target.max_files:
        return f"patch touches {len(changes)} files, at most {target.max_files} allowed"
    folded = {_folded(path): path for path in tracked}
    return next((reason for change in changes if (reason := _check_change(change, folded, target))), None)


def _check_change(change: TreeChange, folded: dict[str, str], target: TargetTable) -> str | None:
    path, parts = change.path, change.path.split("/")
    if change.new_mode not in ("100644", "100755", "000000"):
        kind = {"120000": "symbolic link", "160000": "submodule"}.get(change.new_mode, f"mode {change.new_mode}")
        return f"{kind} at {path!r}; only plain files may be patched"
    if change.old_mode != "000000" and change.new_mode not in (change.old_mode, "000000"):
        return f"file mode of {path!r} changes from {change.old_mode} to {change.new_mode}"
    if change.old_mode == "000000" and change.new_mode == "100755":
        return f"new executable file {path!r}"
    if not path.isascii() or not path.isprintable() or ".." in parts or path.startswith("/"):
        return f"path {path!a} is not a plain relative ASCII path"
    if any(part.lower() in _FORBIDDEN_NAMES for part in parts) or path.lower().endswith(_FORBIDDEN_SUFFIXES):
        return f"path {path!r} can never be patched"
    if path_matches(path, target.frozen):
        return f"path {path!r} is frozen by the task"
    if not path_matches(path, target.patchable):
        return f"path {path!r} is outside what the task lets a patch touch ({', '.join(target.patchable)})"
    twin = folded.get(_folded(path), path)
    return None if twin == path else f"path {path!r} differs from {twin!r} by case alone"


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", path).casefold()
