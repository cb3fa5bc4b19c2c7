"""Agents: who proposes candidates. A folder of patches, or any command that edits a workspace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pytest_rsi.candidate import OVERHEAD_CLASSES, Candidate, CandidateError, read_candidates

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_rsi.target import Target
    from pytest_rsi.task import Task

DEFAULT_TURN_S = 3600.0
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What an agent is given for one proposal.

    ``history`` has one JSON-ready object for every earlier candidate; ``deadline`` is on the system's clock (seconds
    since the epoch). ``folder`` is an empty place for the workspace and what surrounds it.
    """

    number: int
    task: Task
    target: Target
    base: str
    history: Sequence[dict[str, Any]]
    deadline: float
    folder: Path


@dataclass(frozen=True, slots=True)
class Proposal:
    """What came of a turn: a candidate, or none and why; ``exhausted`` when the agent has nothing more to say."""

    candidate: Candidate | None
    note: str = ""
    exhausted: bool = False


class Agent(Protocol):
    """Somebody who proposes."""

    def propose(self, turn: Turn) -> Proposal:
        """Return one proposal; must be back by the turn's deadline."""


class PatchFolder:
    """Proposes the patches of a folder, in name order, each once; passes over what has a verdict on this baseline."""

    def __init__(self, folder: Path) -> None:
        self._left: Iterator[Candidate] = iter(read_candidates(folder))

    def propose(self, turn: Turn) -> Proposal:
        """Return the next patch without a verdict."""
        judged = {entry["sha256"] for entry in turn.history if entry["base"] == turn.base}
        candidate = next((candidate for candidate in self._left if candidate.sha256 not in judged), None)
        return Proposal(candidate, exhausted=candidate is None)


class Command:
    """Runs a shell command in a fresh workspace each turn; what the workspace differs by when it exits is proposed."""

    def __init__(self, command: str) -> None:
        self._command = command

    def propose(self, turn: Turn) -> Proposal:
        """Run the command once."""
        workspace = turn.folder / "workspace"
        workspace.mkdir(parents=True)
        turn.target.lay_out_workspace(turn.base, workspace)
        brief, history = turn.folder / "brief.md", turn.folder / "history.jsonl"
        brief.write_text(write_brief(turn, workspace), encoding="utf-8")
        history.write_text("".join(json.dumps(entry) + "\n" for entry in turn.history), encoding="utf-8")
        environment = os.environ | {
            "RSI_BRIEF": str(brief),
            "RSI_HISTORY": str(history),
            "RSI_WORKSPACE": str(workspace),
            "RSI_DEADLINE": f"{turn.deadline:.0f}",
        }
        status = self._run(workspace, turn.folder, environment, turn.deadline)
        diff = turn.target.workspace_diff(turn.base, workspace)
        if not diff:
            return Proposal(None, f"agent {status} and left the workspace as it was; see {turn.folder / 'stdout'}")
        said = _last_json_line(turn.folder / "stdout")
        overhead_class = str(said.get("class", "other"))
        return Proposal(
            Candidate(
                name=f"{turn.number:04d}",
                diff=diff,
                title=str(said.get("title", ""))[:120] or f"proposal {turn.number}",
                overhead_class=overhead_class if overhead_class in OVERHEAD_CLASSES else "other",
                rationale=str(said.get("rationale", ""))[:2000],
                author="agent",
            ),
            f"agent {status}",
        )

    def _run(self, workspace: Path, folder: Path, environment: dict[str, str], deadline: float) -> str:
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            child = subprocess.Popen(
                ["/bin/sh", "-c", self._command],
                cwd=workspace,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            try:
                status = child.wait(max(0.0, deadline - time.time()))
            except subprocess.TimeoutExpired:
                _end_group(child)
                return "ran past its deadline and was ended"
            except BaseException:
                _end_group(child)
                raise
            # What it left running would disturb the measurement that comes next.
            _end_group(child)
        return "finished" if status == 0 else f"exited with status {status}"


def make_agent(spec: str, folder: Path) -> Agent:
    """Return the agent that ``--rsi-agent`` names: ``patches:DIR`` or a shell command.

    Raises:
        CandidateError: the folder has no patches.
    """
    if spec.startswith("patches:"):
        return PatchFolder(folder / spec.removeprefix("patches:"))
    if not spec.strip():
        raise CandidateError("--rsi-agent is empty, expected patches:DIR or a shell command")
    return Command(spec)


def write_brief(turn: Turn, workspace: Path) -> str:
    """Return the Markdown brief: the task, the rules, what may be touched, how to check oneself."""
    task = turn.task
    loads = "\n".join(
        f"- `{load.name}`: {load.mode}, "
        + (f"{load.concurrency} requests in flight" if load.concurrency else f"{load.rate_hz:g} requests/s arriving")
        for load in task.workload
    )
    frozen = (
        f"\nNever touch: {', '.join(f'`{pattern}`' for pattern in task.target.frozen)}." if task.target.frozen else ""
    )
    return f"""# Make this server faster

Task `{task.name}`: {task.task.title}.

The folder `{workspace}` holds the server's source at the current best version. Change it so that the server answers
more requests per second, in these workloads together, without making any answer worse. When your command exits, what
the folder differs by is judged as one patch.

{loads}

## What may be touched
Text files that match {", ".join(f"`{pattern}`" for pattern in task.target.patchable)}.{frozen} At most
{task.target.max_files} files and {task.target.max_patch_bytes} bytes of patch; no binaries, links or mode changes.

## How it is judged
Both versions are started afresh, several times, and answer the same new requests in alternating bursts. The gain must
be at least {task.duel.min_speedup:g}x with its confidence interval. Guards compare every timed answer with the current
version's: words, samples, duration, endings, latency, seeds, failures. Prompts never repeat, so caching answers gains
nothing. A win is measured once more in a clean room on requests nobody has seen.

## Classes of overhead worth looking for
`idle-spin`, `tensor-roundtrip`, `unused-compute`, `small-launches`, `stage-overlap`; anything else is `other`.

## Say what you did
The last line of your standard output may be JSON: `{{"title": "...", "rationale": "...", "class": "idle-spin"}}`.
`$RSI_HISTORY` lists earlier candidates as JSON lines, with what was measured and what was learnt. Be done before
`$RSI_DEADLINE` (seconds since the epoch).

## Check yourself
`git diff > /tmp/mine.patch` in the folder, then `pytest --rsi-task {task.name} --rsi-candidate /tmp/mine.patch`.
"""


def _last_json_line(file: Path) -> dict[str, Any]:
    lines = file.read_bytes()[-65_536:].decode(errors="replace").strip().splitlines()
    try:
        said = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _end_group(child: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
        except ProcessLookupError:
            break
        if number is signal.SIGTERM:
            try:
                child.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                continue
    child.wait()
