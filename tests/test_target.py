from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_rsi.candidate import Candidate, CandidateError, parse_candidate, read_candidates
from pytest_rsi.policy import path_matches
from pytest_rsi.target import PolicyError, Target, TargetError, checkout_candidate, open_target

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rsi.task import Task

STAGE = """diff --git a/app/stage.py b/app/stage.py
--- a/app/stage.py
+++ b/app/stage.py
@@ -1,3 +1,2 @@
 def run(x):
-    y = x + 1
-    return y
+    return x + 1
"""


def new_file(path: str, line: str = "x = 1", mode: str = "100644") -> str:
    return (
        f"diff --git a/{path} b/{path}\nnew file mode {mode}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{line}\n"
        + ("\\ No newline at end of file\n" if mode == "120000" else "")
    )


def test_equal_sources_give_equal_commits(stub: Task, tmp_path: Path) -> None:
    first, second = open_target(stub, tmp_path / "a"), open_target(stub, tmp_path / "b")
    assert first.base == second.base
    assert sorted(first.paths(first.base)) == ["README.md", "app/__main__.py", "app/config.py", "app/stage.py"]


def test_a_good_patch_becomes_the_same_commit_everywhere(stub: Task, target: Target, tmp_path: Path) -> None:
    candidate = Candidate("good", STAGE, title="Fewer names")
    commit = target.apply(candidate, target.base, stub)
    clone = target.clone(tmp_path / "clone.git")
    assert clone.apply(candidate, clone.base, stub) == commit
    (tmp_path / "tree").mkdir()
    target.lay_out(commit, tmp_path / "tree")
    assert (tmp_path / "tree/app/stage.py").read_text() == "def run(x):\n    return x + 1\n"
    assert not (tmp_path / "tree/.git").exists()


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        (new_file("conftest.py"), "'conftest.py' is outside"),
        (new_file("app/config.d/x.txt"), "'app/config.d/x.txt' is outside"),
        (new_file("sitecustomize.py"), "can never be patched"),
        (new_file("app/evil.pth"), "can never be patched"),
        (new_file("app/.gitattributes", "*.py filter=evil"), "can never be patched"),
        (new_file("app/link.py", "../../outside", "120000"), "symbolic link at 'app/link.py'"),
        (new_file("app/run.py", mode="100755"), "new executable file 'app/run.py'"),
        (new_file("../outside.py"), "does not apply"),
        (new_file("app/STAGE.py"), "differs from 'app/stage.py' by case"),
        (new_file("app/stäge.py"), "not a plain relative ASCII path"),
        (new_file(".git/hooks/post-checkout"), "does not apply"),
        (new_file("app/data.py", f'X = "{"QmFzZTY0IGxvb2tzIGxpa2UgdGhpcw" * 40}"'), "packed data"),
        (new_file("app/data.py", "x = '\u202e'"), "invisible"),
        (STAGE.replace("app/stage.py", "app/config.py"), "does not apply"),
        (
            "diff --git a/app/config.py b/app/config.py\n--- a/app/config.py\n+++ b/app/config.py\n"
            "@@ -1 +1 @@\n-STEPS = 10\n+STEPS = 5\n",
            "'app/config.py' is frozen",
        ),
        (STAGE.replace("     y = x", "     z = x").replace("-    y = x + 1", "-    z = x + 1"), "does not apply"),
        (STAGE.replace(" def run(x):", " def  run(x):"), "does not apply"),
        (
            "diff --git a/app/stage.py b/app/stage.py\nold mode 100644\nnew mode 100755\n",
            "file mode of 'app/stage.py' changes",
        ),
        (
            "diff --git a/sub b/sub\nnew file mode 160000\n--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n"
            f"+Subproject commit {'1' * 40}\n",
            "submodule at 'sub'",
        ),
        (
            "diff --git a/app/stage.py b/app/two.py\nsimilarity index 100%\n"
            "rename from app/stage.py\nrename to app/two.py\n",
            "rename",
        ),
        ("diff --git a/app/w.py b/app/w.py\nnew file mode 100644\nGIT binary patch\nliteral 3\nKcmZ\n", "binary"),
        (new_file("app/big.py", "\n+".join(f"x{i} = {i}" for i in range(9000))), "at most 60000 allowed"),
    ],
)
def test_a_bad_patch_is_refused_with_its_reason(
    stub: Task, target: Target, tmp_path: Path, diff: str, reason: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        target.apply(Candidate("bad", diff), target.base, stub)
    assert reason in str(caught.value)
    assert not (tmp_path / "outside.py").exists()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(0, len(STAGE)), noise=st.text(max_size=20))
def test_a_mangled_patch_is_refused_or_changes_only_what_it_may(
    stub: Task, target: Target, cut: int, noise: str
) -> None:
    with suppress(PolicyError):
        commit = target.apply(Candidate("mangled", STAGE[:cut] + noise + STAGE[cut:]), target.base, stub)
        changed = set(target.paths(commit)) ^ set(target.paths(target.base))
        assert all(path_matches(path, stub.target.patchable) for path in changed)


def test_workspace_has_no_history_and_its_git_folder_is_never_trusted(
    stub: Task, target: Target, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    target.lay_out_workspace(target.base, workspace)
    log = subprocess.run(
        ["git", "log", "--all", "--oneline"], cwd=workspace, capture_output=True, text=True, check=True
    )
    assert len(log.stdout.splitlines()) == 1
    (workspace / "app/stage.py").write_text("def run(x):\n    return x + 1\n")
    (workspace / "app/new.py").write_text("y = 2\n")
    trap = tmp_path / "trap"
    (workspace / ".git/config").write_text(
        f'[core]\n fsmonitor = touch {trap}\n[filter "evil"]\n clean = touch {trap}\n'
    )
    (workspace / ".gitattributes").write_text("*.py filter=evil\n")
    diff = target.workspace_diff(target.base, workspace)
    assert "+y = 2" in diff
    assert not trap.exists()
    with pytest.raises(PolicyError, match="gitattributes"):
        target.apply(Candidate("workspace", diff), target.base, stub)


def test_bytes_that_are_no_utf8_go_through_as_they_are(stub: Task, target: Target, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    target.lay_out_workspace(target.base, workspace)
    (workspace / "app/stage.py").write_bytes(b"# coding: latin-1\n# \xe4\n")
    candidate = Candidate("latin", target.workspace_diff(target.base, workspace))
    commit = target.apply(Candidate.from_json(json.loads(json.dumps(dataclasses.asdict(candidate)))), target.base, stub)
    (tmp_path / "tree").mkdir()
    target.lay_out(commit, tmp_path / "tree")
    assert (tmp_path / "tree/app/stage.py").read_bytes() == b"# coding: latin-1\n# \xe4\n"


def test_a_checkout_is_judged_committed_or_not(stub: Task, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "app").mkdir(parents=True)
    (checkout / "app/stage.py").write_text("def run(x):\n    y = x + 1\n    return y\n")
    env = os.environ | {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }

    def run(*args: str) -> None:
        subprocess.run(["git", *args], cwd=checkout, check=True, capture_output=True, env=env)

    run("init", "-q", "-b", "main")
    run("add", "--all")
    run("commit", "-q", "-m", "first")
    target = open_target(stub, tmp_path / "state", checkout, "main")
    (checkout / "app/stage.py").write_text("def run(x):\n    return x + 1\n")
    candidate = checkout_candidate(target, checkout)
    assert "+    return x + 1" in candidate.diff
    run("commit", "-q", "-a", "-m", "second")
    assert checkout_candidate(target, checkout).diff == candidate.diff
    assert checkout_candidate(target, checkout, "main~1..main").diff == candidate.diff
    with pytest.raises(TargetError, match=r"expected OLD\.\.NEW"):
        checkout_candidate(target, checkout, "main..")
    with pytest.raises(TargetError, match="revision 'nope' is not in"):
        open_target(stub, tmp_path / "other", checkout, "nope")


def test_headers_are_read_and_checked(tmp_path: Path) -> None:
    text = (
        "Title: Block\nClass: idle-spin\nRationale: one\n two\nExpect: rejected\nReason: guard:wer, policy\n\n" + STAGE
    )
    candidate = parse_candidate("0001-x", text)
    assert (candidate.title, candidate.overhead_class, candidate.rationale) == ("Block", "idle-spin", "one two")
    assert (candidate.expect, candidate.reasons) == ("rejected", ("guard:wer", "policy"))
    assert candidate.sha256 == parse_candidate("other", STAGE).sha256
    with pytest.raises(CandidateError, match="Class 'magic', expected idle-spin"):
        parse_candidate("x", "Class: magic\n" + STAGE)
    with pytest.raises(CandidateError, match="'x' has no diff"):
        parse_candidate("x", "Title: nothing\n")
    with pytest.raises(CandidateError, match="no file, folder or revision range"):
        read_candidates(tmp_path / "missing")
    (tmp_path / "latin.patch").write_bytes(b"\xff" + STAGE.encode())
    with pytest.raises(CandidateError, match="utf-8"):
        read_candidates(tmp_path)


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("app/a.py", "app/*.py", True),
        ("app/b/a.py", "app/*.py", False),
        ("app/a.py", "app/**/*.py", True),
        ("app/b/c/a.py", "app/**/*.py", True),
        ("xapp/a.py", "app/**/*.py", False),
        ("app/a.pyc", "app/*.py", False),
        ("app/a+b.py", "app/a+?.py", True),
        ("anything/at/all", "**", True),
    ],
)
def test_patterns(path: str, pattern: str, expected: bool) -> None:
    assert path_matches(path, [pattern]) is expected
