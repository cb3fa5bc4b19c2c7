"""One run of ``pytest --rsi-task``: starts judge processes, checks their receipts, and keeps the ledger."""

from __future__ import annotations

import dataclasses
import json
import secrets
import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_rsi.agents import make_agent
from pytest_rsi.candidate import Candidate, CandidateError, read_candidates
from pytest_rsi.cleanroom import IsolationError, clean_room
from pytest_rsi.evaluator import standing
from pytest_rsi.git import GitError
from pytest_rsi.ledger import Ledger, LedgerError, ledger_path
from pytest_rsi.machine import read_machine
from pytest_rsi.options import OptionError, Options, load_options
from pytest_rsi.process import JudgeProcess, Receipts
from pytest_rsi.report.audit import as_html, markdown
from pytest_rsi.scratch import scratch_folder, sweep
from pytest_rsi.target import PolicyError, Target, TargetError, checkout_candidate, open_target
from pytest_rsi.task import Task, TaskError, check_requirements, load_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

    from pytest_rsi.stats import NoiseFloor

PASSED, FAILED, INTERRUPTED, INTERNAL, USAGE = 0, 1, 2, 3, 4
RECORDED = ("judging", "stage", "pair", "verdict", "audit", "error")
SEARCH_CONFIDENCE = 0.95
"""A search may be wrong one time in twenty about what to look at again; the clean room decides at 99 %."""
CONFIRM_CONFIDENCE = 0.99

UserError = (TaskError, TargetError, CandidateError, LedgerError, IsolationError, OptionError, GitError)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """What every judge process of one run shares."""

    task: Task
    target: Target
    ledger: Ledger
    options: Options
    folder: Path

    def judge(
        self,
        candidates: list[Candidate],
        base: str,
        args: list[str],
        *,
        confidence: float,
        output: IO[bytes] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Receipts:
        """Judge candidates against a baseline in a judge process of this machine."""
        settings = {"confidence": confidence, "max_pairs": self.options.rsi_max_pairs, "isolation": "process"}
        seed = self.options.rsi_seed
        settings["seed"] = secrets.randbits(63) if seed is None else seed
        job = self._job(candidates, base, settings)
        receipts = JudgeProcess(args, job, self._listener(progress), output=output).run()
        self.note_floor(receipts)
        return receipts

    def confirm(
        self, candidate: Candidate, base: str, *, output: IO[bytes], progress: Callable[[str], None]
    ) -> Receipts:
        """Judge one candidate in the clean room, on requests drawn there; only the patch goes in."""
        with scratch_folder() as folder:
            state = self.ledger.path.parent
            wanted: Any = self.options.rsi_isolation
            room = clean_room(wanted, folder, (self.target.repository,), (state,))
            settings = {
                "confidence": CONFIRM_CONFIDENCE,
                "fixed_pairs": self.task.duel.confirm_pairs,
                "held_out": True,
                "isolation": room.isolation,
            }
            job = self._job([candidate], base, settings)
            process = JudgeProcess(
                [],
                job,
                self._listener(progress),
                prefix=list(room.prefix),
                environment=room.environment,
                output=output,
            )
            return process.run()

    def accepted_commit(self, receipts: Receipts, candidate: Candidate, base: str) -> str | None:
        """Return the commit of a candidate that a judge process accepted with complete receipts, else ``None``.

        The patch is applied again here: the commit must be the one that was measured.
        """
        if receipts.exit_status != PASSED or not receipts.complete or len(receipts.verdicts) != 1:
            return None
        verdict = receipts.verdicts[0]
        if verdict["status"] != "accepted" or verdict["scope"] != "full" or verdict["sha256"] != candidate.sha256:
            return None
        try:
            commit = self.target.apply(candidate, base, self.task)
        except PolicyError:
            return None
        return commit if commit == verdict["commit"] else None

    def note_floor(self, receipts: Receipts) -> None:
        """Keep the noise floor of a baseline that was measured against itself."""
        for verdict in receipts.verdicts:
            if verdict["scope"] == "baseline" and verdict["floor"] is not None:
                body = {
                    "commit": verdict["base"],
                    "fingerprint": verdict["machine"]["fingerprint"],
                    "floor": verdict["floor"],
                    "log_ratio_pairs": verdict["speeds"][-1]["pairs"],
                    "requests_per_s": {
                        speed["workload"]: speed["baseline_rps"]
                        for speed in verdict["speeds"]
                        if speed["workload"] != "all"
                    },
                }
                self.ledger.append("floor", body)

    def floor(self, base: str) -> NoiseFloor | None:
        """Return the noise floor that the ledger knows for a baseline, or for what it grew from, on this machine."""
        return self.ledger.floor(base, read_machine().fingerprint)

    def measured_floor(self, base: str) -> dict[str, Any] | None:
        """Return what the ledger holds of this very baseline, measured against itself on this machine."""
        event = self.ledger.last("floor", fingerprint=read_machine().fingerprint, commit=base)
        return event.body if event else None

    @contextmanager
    def log(self, name: str) -> Iterator[IO[bytes]]:
        """Open the file that takes a judge process's terminal output in this run."""
        folder = self.ledger.path.parent / "logs" / self.ledger.run
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{name}.log").open("wb") as file:
            yield file

    def _job(self, candidates: list[Candidate], base: str, settings: dict[str, Any]) -> dict[str, Any]:
        floor, measured = self.floor(base), self.measured_floor(base)
        settings |= {
            "min_speedup": self.options.rsi_min_speedup,
            "blocks": self.options.rsi_blocks,
            "floor": dataclasses.asdict(floor) if floor else None,
            "history_rps": measured["requests_per_s"] if measured else {},
            "caveats": [text] if (text := standing(self.task, self.ledger).text) else [],
        }
        return {
            "task": self.task.name,
            "audit": "all" if self.options.rsi_audit else "honest" if self.options.rsi_calibrate else "",
            "repository": str(self.target.repository),
            "root": self.target.base,
            "base": base,
            "candidates": [dataclasses.asdict(candidate) for candidate in candidates],
            "settings": settings,
        }

    def _listener(self, progress: Callable[[str], None] | None) -> Callable[[str, dict[str, Any]], None]:
        def listen(kind: str, body: dict[str, Any]) -> None:
            if kind in RECORDED:
                self.ledger.append(kind, body)
            elif kind == "progress" and progress is not None:
                progress(body["text"])

        return listen


def run(options: Options, args: list[str], folder: Path) -> int:
    """Do what a command line asks for and return pytest's exit code.

    Raises:
        UserError: one line that says what is wrong with what was asked.
    """
    task = load_task(str(options.rsi_task))
    sweep()
    collecting = "--collect-only" in args or "--co" in args
    if not collecting:
        check_requirements(task)
    path = ledger_path(options.rsi_ledger, folder)
    with closing(Ledger(path, task.name)) as ledger:
        checkout = (folder / options.rsi_target).resolve() if options.rsi_target else None
        target = open_target(task, path.parent, checkout, options.rsi_base)
        supervisor = Supervisor(task, target, ledger, options, folder)
        ledger.append("run", {"args": args, "options": dataclasses.asdict(options), "root": target.base})
        if options.rsi_agent:
            from pytest_rsi.loop import Loop

            return Loop(supervisor, make_agent(options.rsi_agent, folder)).run()
        if options.rsi_confirm:
            from pytest_rsi.loop import confirm_alone

            return confirm_alone(supervisor, options.rsi_confirm)
        return _judge_once(supervisor, args, checkout)


def _judge_once(supervisor: Supervisor, args: list[str], checkout: Path | None) -> int:
    options, target = supervisor.options, supervisor.target
    candidates = [one for given in options.rsi_candidate for one in _candidates(supervisor, given, checkout)]
    if checkout is not None and not candidates:
        changed = checkout_candidate(target, checkout)
        candidates = [changed] if changed.diff else []
    base = supervisor.ledger.baseline(target.base).commit
    output: Any = sys.stderr.buffer if options.rsi_json == "-" else None
    receipts = supervisor.judge(candidates, base, args, confidence=options.rsi_confidence, output=output)
    if options.rsi_json:
        write_json(options.rsi_json, supervisor, receipts)
    if options.rsi_report and receipts.audit is not None:
        page = as_html(receipts.audit) if options.rsi_report.endswith(".html") else markdown(receipts.audit)
        _write(supervisor.folder / options.rsi_report, page, "--rsi-report")
    return exit_code(receipts)


def _candidates(supervisor: Supervisor, given: str, checkout: Path | None) -> list[Candidate]:
    if checkout is not None and ".." in given and not (supervisor.folder / given).exists():
        return [checkout_candidate(supervisor.target, checkout, given)]
    return read_candidates(supervisor.folder / given)


def exit_code(receipts: Receipts) -> int:
    """Return the exit code that receipts are worth: a judge that did not report everything has not passed anything."""
    if receipts.error is not None:
        return INTERNAL
    if receipts.exit_status == PASSED and not receipts.complete:
        lost = ", ".join(receipts.missing[:3]) or "any item"
        print(f"ERROR: the judge process ended without reporting {lost}; nothing has passed", file=sys.stderr)  # noqa: T201
        return INTERNAL
    return receipts.exit_status if 0 <= receipts.exit_status <= 5 else INTERNAL


def write_json(file: str, supervisor: Supervisor, receipts: Receipts) -> None:
    """Write the machine-readable result (``docs/json.md``).

    Raises:
        OptionError: the file cannot be written.
    """
    body = {
        "schema": "pytest-rsi-result/1",
        "run": supervisor.ledger.run,
        "task": supervisor.task.name,
        "exit_code": exit_code(receipts),
        "complete": receipts.complete,
        "items": receipts.outcomes,
        "missing": list(receipts.missing),
        "verdicts": list(receipts.verdicts),
        "audit": receipts.audit,
    }
    text = json.dumps(body, indent=2, allow_nan=False) + "\n"
    if file == "-":
        sys.stdout.write(text)
        return
    _write(supervisor.folder / file, text, "--rsi-json")


def _write(path: Path, text: str, flag: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{flag} {str(path)!r}: {error.strerror}") from None


def main() -> int:
    """Run as a process of its own: options and arguments come as JSON, the answer is the exit status."""
    job = json.loads(sys.argv[1])
    try:
        return run(load_options(job["options"]), job["args"], Path(job["folder"]))
    except UserError as error:
        print(f"ERROR: {error}", file=sys.stderr)  # noqa: T201
        return USAGE
    except KeyboardInterrupt:
        print("interrupted; everything finished so far is in the ledger", file=sys.stderr)  # noqa: T201
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
