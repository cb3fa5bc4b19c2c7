"""The git repository of the server under test: materialise it, apply candidates as commits, lay out trees."""

from __future__ import annotations

import hashlib
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rsi.candidate import Candidate
from pytest_rsi.git import GitError, git
from pytest_rsi.policy import TreeChange, check_text, check_tree
from pytest_rsi.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_rsi.task import Task

_MISSING = "000000"


class TargetError(ValueError):
    """The target cannot be used; the message is one line."""


class PolicyError(ValueError):
    """A candidate is refused before anything of it runs; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Target:
    """A bare repository of ours, and the commit that a task starts from."""

    repository: Path
    base: str

    def apply(self, candidate: Candidate, base: str, task: Task) -> str:
        """Apply a candidate exactly on a commit and return the new commit.

        Raises:
            PolicyError: the patch does not apply exactly, or its text or the tree that it makes is refused.
        """
        if reason := check_text(candidate.diff, task.target):
            raise PolicyError(reason)
        with self._index(base) as env:
            args = ("apply", "--cached", "--whitespace=nowarn", "-")
            try:
                # Only git applies patches here: it takes no fuzz, and GNU patch writes into .git.
                git(*args, cwd=self.repository, env=env, stdin=candidate.patch)
            except GitError as error:
                raise PolicyError(f"patch does not apply to {base[:12]}: {error}") from None
            tree = git("write-tree", cwd=self.repository, env=env).decode().strip()
        if reason := check_tree(self._changes(base, tree), self.paths(base), task.target):
            raise PolicyError(reason)
        return self._commit(tree, base, candidate.title)

    def diff(self, old: str, new: str) -> str:
        """Return the unified diff between two commits."""
        return _text_diff(old, new, cwd=self.repository)

    def paths(self, commit: str) -> list[str]:
        """Return the paths of all files of a commit."""
        listing = git("ls-tree", "-r", "-z", "--name-only", commit, cwd=self.repository)
        return [path.decode(errors="replace") for path in listing.split(b"\0") if path]

    def lay_out(self, commit: str, folder: Path) -> None:
        """Write the files of a commit into an empty folder, without any git metadata."""
        with self._index(commit, folder) as env:
            # Links are the baseline's own: no candidate can add one.
            git("-c", "core.symlinks=true", "checkout-index", "--all", cwd=folder, env=env)

    def lay_out_workspace(self, commit: str, folder: Path) -> None:
        """Write a commit into an empty folder as a new repository with one commit: no history, reflog or remote."""
        self.lay_out(commit, folder)
        _commit_all(folder)

    def workspace_diff(self, commit: str, folder: Path) -> str:
        """Return what a folder differs by from a commit, new files included; no git metadata in the folder is read."""
        with self._index(commit, folder) as env:
            git("add", "--all", cwd=folder, env=env)
            tree = git("write-tree", cwd=folder, env=env).decode().strip()
        return self.diff(commit, tree)

    def clone(self, folder: Path) -> Target:
        """Return a private copy of the repository, with all commits that are named in it."""
        folder.mkdir(parents=True)
        git("init", "-q", "--bare", cwd=folder)
        git("fetch", "-q", "--no-tags", str(self.repository), "+refs/*:refs/*", cwd=folder)
        return Target(folder, self.base)

    def keep(self, name: str, commit: str) -> None:
        """Name a commit, so that it is never collected as garbage."""
        git("update-ref", f"refs/rsi/{name}", commit, cwd=self.repository)

    @contextmanager
    def _index(self, commit: str, work_tree: Path | None = None) -> Iterator[dict[str, str]]:
        """Yield git's environment for an index of its own that holds a commit, and for a work tree if named."""
        with scratch_folder() as scratch:
            env = {"GIT_INDEX_FILE": str(scratch / "index"), "GIT_DIR": str(self.repository)}
            if work_tree is not None:
                env["GIT_WORK_TREE"] = str(work_tree)
            git("read-tree", commit, cwd=self.repository, env=env)
            yield env

    def _changes(self, base: str, tree: str) -> list[TreeChange]:
        raw = git("diff-tree", "-r", "-z", "--raw", "--no-renames", base, tree, cwd=self.repository).decode(
            errors="replace"
        )
        fields = raw.split("\0")
        heads = [head.lstrip(":").split() for head in fields[:-1:2]]
        return [TreeChange(head[0], head[1], path) for head, path in zip(heads, fields[1::2], strict=True)]

    def _commit(self, tree: str, parent: str, message: str) -> str:
        args = ("commit-tree", tree, "-p", parent, "-m", message or "Candidate")
        return git(*args, cwd=self.repository).decode().strip()


def _text_diff(*what: str, cwd: Path) -> str:
    args = ("diff", "--binary", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", *what)
    return git(*args, cwd=cwd).decode("utf-8", errors="surrogateescape")


def open_target(task: Task, state: Path, checkout: Path | None = None, base: str | None = None) -> Target:
    """Return a task's target as a bare repository under the state folder.

    ``checkout`` and ``base`` take it from a checkout instead of from where ``task.toml`` says.

    Raises:
        TargetError: the source is missing, no repository, or has no such revision.
    """
    try:
        if checkout is not None:
            return _clone(str(checkout), base or "HEAD", state / "targets" / f"{task.name}-checkout.git")
        if task.target.source is not None:
            return _materialise(task.folder / task.target.source, state / "targets")
        repository = str(task.target.repository)
        name = hashlib.sha256(repository.encode()).hexdigest()[:12]
        return _clone(repository, task.target.ref or "HEAD", state / "targets" / f"{task.name}-{name}.git")
    except GitError as error:
        raise TargetError(f"target of task {task.name!r}: {error}") from None


def checkout_candidate(target: Target, checkout: Path, revisions: str | None = None) -> Candidate:
    """Return the candidate that a checkout adds to the target's base, or what a revision range of it changes.

    Without a range: everything since the base, committed or not.

    Raises:
        TargetError: the range is not of the form A..B, or names an unknown revision.
    """
    try:
        if revisions is None:
            name, diff = "worktree", target.workspace_diff(target.base, checkout)
        else:
            old, dots, new = revisions.partition("..")
            if not (old and dots and new):
                raise TargetError(f"revision range {revisions!r}, expected OLD..NEW")
            name, diff = revisions.replace("/", "-"), _text_diff(old, new, cwd=checkout)
    except GitError as error:
        raise TargetError(f"--rsi-target {checkout}: {error}") from None
    return Candidate(name=name, diff=diff, title=f"changes of {name}")


def _materialise(source: Path, targets: Path) -> Target:
    """Make a folder a repository with one commit; equal content gives the same repository and commit."""
    if not source.is_dir():
        raise TargetError(f"target folder {source} is missing")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".git")
    with scratch_folder() as scratch:
        tree = scratch / "tree"
        shutil.copytree(source, tree, ignore=ignored)
        _commit_all(tree)
        commit = git("rev-parse", "HEAD", cwd=tree).decode().strip()
        return _clone(str(tree), commit, targets / f"{source.parent.name}.git")


def _commit_all(folder: Path) -> None:
    """Make a folder a repository with one commit of everything in it."""
    git("init", "-q", cwd=folder)
    git("add", "--all", "--force", cwd=folder)
    git("commit", "-q", "-m", "Baseline", cwd=folder)


def _clone(origin: str, revision: str, repository: Path) -> Target:
    repository.mkdir(parents=True, exist_ok=True)
    if not (repository / "HEAD").exists():
        git("init", "-q", "--bare", cwd=repository)
    git(
        "fetch",
        "-q",
        "--no-tags",
        "--force",
        origin,
        "+refs/heads/*:refs/origin/heads/*",
        "+HEAD:refs/origin/HEAD",
        cwd=repository,
    )
    for name in (f"refs/origin/heads/{revision}", "refs/origin/HEAD" if revision == "HEAD" else revision):
        try:
            commit = git("rev-parse", "--verify", "-q", f"{name}^{{commit}}", cwd=repository).decode().strip()
        except GitError:
            continue
        target = Target(repository, commit)
        target.keep(f"base-{commit[:12]}", commit)
        return target
    raise TargetError(f"revision {revision!r} is not in {origin}")
