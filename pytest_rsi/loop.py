"""The outer loop: agent, judge, clean room; a confirmed candidate becomes the next baseline."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_rsi.agents import DEFAULT_TURN_S, Agent, Proposal, Turn
from pytest_rsi.candidate import Candidate, CandidateError
from pytest_rsi.evaluator import standing
from pytest_rsi.report.terminal import Round, console, loop_table, speed_text
from pytest_rsi.supervisor import FAILED, INTERNAL, PASSED, SEARCH_CONFIDENCE, Supervisor

if TYPE_CHECKING:
    from pytest_rsi.process import Receipts


ATTEMPTS = 3
"""Once may be the machine's fault; whatever keeps ending the judge is not waited for for ever."""


class NoVerdictError(RuntimeError):
    """A judge process ended without a verdict; the message is one line."""


class Loop:
    """Rounds of one agent on one task. All its memory is the ledger: the same command goes on where it was ended."""

    def __init__(self, supervisor: Supervisor, agent: Agent) -> None:
        self.supervisor = supervisor
        self.ledger = supervisor.ledger
        self.agent = agent
        self.console = console()
        self.began = time.monotonic()
        self.rounds = 0

    def run(self) -> int:
        """Go on until a candidate is confirmed, the agent is exhausted, or rounds or budget are used up."""
        options = self.supervisor.options
        self._say(f"pytest-rsi loop on task {self.supervisor.task.name}, ledger {self.ledger.path}")
        if options.rsi_until == "first" and self._confirmed():
            self._say(
                "a candidate is confirmed already; --rsi-until budget goes on from it, another ledger starts afresh"
            )
        elif not self._sees() or not self._noise_floor():
            return INTERNAL
        else:
            while self._may_go_on():
                candidate = self._unfinished()
                if candidate is None:
                    proposal = self._propose()
                    if proposal.exhausted:
                        break
                    candidate = proposal.candidate
                self.rounds += 1
                if candidate is None:
                    continue
                try:
                    self._round(candidate)
                except NoVerdictError as error:
                    self._say(f"stopping: {error}; the same command tries once more")
                    return INTERNAL
        self._summary()
        return PASSED if self._confirmed() else FAILED

    # Memory

    def _base(self) -> str:
        return self.ledger.baseline(self.supervisor.target.base).commit

    def _confirmed(self) -> bool:
        return bool(self.ledger.baseline(self.supervisor.target.base).candidate)

    def _judged(self, candidate: Candidate, base: str) -> dict[str, Any] | None:
        event = self.ledger.last("judged", sha256=candidate.sha256, base=base)
        return event.body if event else None

    def _unfinished(self) -> Candidate | None:
        """Return the candidate that an earlier, killed run proposed and did not bring to an end."""
        base = self._base()
        for event in self.ledger.events("candidate"):
            if event.body["base"] != base:
                continue
            candidate = Candidate.from_json(event.body)
            judged = self._judged(candidate, base)
            if judged is None or (judged["accepted"] and self._clean_room_result(candidate, base) is None):
                return candidate
        return None

    def _clean_room_result(self, candidate: Candidate, base: str) -> dict[str, Any] | None:
        event = self.ledger.last("clean-room", sha256=candidate.sha256, base=base)
        return event.body if event else None

    # Rounds

    def _may_go_on(self) -> bool:
        options = self.supervisor.options
        if options.rsi_until == "first" and self._confirmed():
            return False
        if options.rsi_rounds is not None and self.rounds >= options.rsi_rounds:
            self._say(f"stopping after {self.rounds} rounds")
            return False
        if options.rsi_budget is not None and time.monotonic() - self.began >= options.rsi_budget:
            self._say("stopping: the time budget is used up")
            return False
        return True

    def _sees(self) -> bool:
        """Return whether this evaluator may lead a search: one that is known to be blind needs the user's word."""
        found = standing(self.supervisor.task, self.ledger)
        if found.text:
            self._say(f"  caution: {found.text}")
        if found.state == "blind" and not self.supervisor.options.rsi_allow_blind:
            self._say("  a search would spend what it does not see; --rsi-allow-blind starts it all the same")
            return False
        return True

    def _noise_floor(self) -> bool:
        """Measure the baseline against itself, unless the ledger knows what that gives on this machine."""
        base = self._base()
        if self.supervisor.measured_floor(base) is not None:
            return True
        self._say("measuring the baseline against itself: the noise floor and the absolute guards")
        with self.supervisor.log("floor") as output:
            receipts = self.supervisor.judge([], base, [], confidence=0.99, output=output, progress=self._progress)
        if not receipts.verdicts:
            self._say(f"the baseline cannot be measured: {receipts.error or f'see {output.name}'}")
            return False
        verdict = receipts.verdicts[-1]
        for reason in verdict["reasons"]:
            self._say(f"  the baseline itself: {reason['text']}")
        floor = self.supervisor.floor(base)
        if floor is not None:
            self._say(f"  noise floor: +-{math.expm1(floor.half_width):.1%} over {floor.pairs} launch pairs")
        return True

    def _propose(self) -> Proposal:
        """Take one turn of the agent; what it proposes is a candidate only if it was not judged before."""
        base, options = self._base(), self.supervisor.options
        left_s = DEFAULT_TURN_S
        if options.rsi_budget is not None:
            left_s = min(left_s, options.rsi_budget - (time.monotonic() - self.began))
        # Every turn has left one of these behind: its number, and so its folder, is its own.
        number = sum(1 for _ in self.ledger.events("candidate", "no-candidate")) + 1
        turn = Turn(
            number=number,
            task=self.supervisor.task,
            target=self.supervisor.target,
            base=base,
            history=self._history(),
            deadline=time.time() + left_s,
            folder=self.ledger.path.parent / "turns" / f"{self.ledger.run}-{number:04d}",
        )
        proposal = self.agent.propose(turn)
        candidate, note = proposal.candidate, proposal.note
        if candidate is not None and (judged := self._judged(candidate, base)) is not None:
            note = f"{candidate.name}: judged before on this baseline: {judged['lesson']}"
            candidate = None
        if candidate is not None:
            self.ledger.append("candidate", {"base": base, **dataclasses.asdict(candidate)})
        else:
            self._say(note or "the agent has no more proposals")
            self.ledger.append("no-candidate", {"base": base, "note": note})
        return replace(proposal, candidate=candidate)

    def _round(self, candidate: Candidate) -> None:
        base = self._base()
        self._say(f"{candidate.name}: {candidate.title} [{candidate.overhead_class}]")
        judged = self._judged(candidate, base) or self._search(candidate, base)
        if not judged["accepted"]:
            return
        self._say(
            f"{candidate.name}: passed the search; clean room: fresh clone, fresh requests, only the patch goes in"
        )
        with self.supervisor.log(f"{candidate.name}-clean-room") as output:
            receipts = self.supervisor.confirm(candidate, base, output=output, progress=self._progress)
        commit = self.supervisor.accepted_commit(receipts, candidate, base)
        result = self._result(candidate, base, receipts, accepted=commit is not None)
        if not receipts.verdicts:
            self._without_verdict(candidate, base, result, output.name)
        if commit is not None:
            self.supervisor.target.keep(f"confirmed/{commit[:12]}", commit)
        self.ledger.append("clean-room", result)
        if commit is not None:
            body = {"root": self.supervisor.target.base, "commit": commit, "before": base, "candidate": candidate.name}
            self.ledger.append("baseline", body | {"sha256": candidate.sha256})
        self._say(f"{candidate.name}: clean room: {result['lesson']}")

    def _search(self, candidate: Candidate, base: str) -> dict[str, Any]:
        with self.supervisor.log(candidate.name) as output:
            receipts = self.supervisor.judge(
                [candidate], base, [], confidence=SEARCH_CONFIDENCE, output=output, progress=self._progress
            )
        accepted = self.supervisor.accepted_commit(receipts, candidate, base) is not None
        result = self._result(candidate, base, receipts, accepted=accepted)
        self._say(f"{candidate.name}: {result['lesson']}")
        if not receipts.verdicts:
            self._without_verdict(candidate, base, result, output.name)
        self.ledger.append("judged", result)
        return result

    def _without_verdict(self, candidate: Candidate, base: str, result: dict[str, Any], log: str) -> None:
        """Stop the loop, unless this candidate has ended the judge too often: then that is its reason."""
        wanted = {"sha256": candidate.sha256, "base": base}
        self.ledger.append("no-verdict", wanted | {"lesson": result["lesson"]})
        ended = sum(1 for event in self.ledger.events("no-verdict") if wanted.items() <= event.body.items())
        if ended < ATTEMPTS:
            raise NoVerdictError(f"{candidate.name} could not be judged; its output is in {log}")
        result["reasons"] = [{"code": "infrastructure", "text": f"{ended} attempts ended without a verdict"}]

    def _result(self, candidate: Candidate, base: str, receipts: Receipts, *, accepted: bool) -> dict[str, Any]:
        verdict = receipts.verdicts[-1] if receipts.verdicts else None
        return {
            "candidate": candidate.name,
            "sha256": candidate.sha256,
            "title": candidate.title,
            "class": candidate.overhead_class,
            "base": base,
            "accepted": accepted,
            "reasons": verdict["reasons"] if verdict else [],
            "speeds": verdict["speeds"] if verdict else [],
            "held_out": bool(verdict and verdict["held_out"]),
            "isolation": verdict["isolation"] if verdict else "",
            "wall_s": verdict["timing"]["wall_s"] if verdict else None,
            "lesson": _lesson(receipts, verdict, accepted=accepted),
        }

    def _history(self) -> list[dict[str, Any]]:
        """Return what an agent may know: everything of the search; of held-out requests pass or fail."""
        entries = []
        for event in self.ledger.events("judged", "clean-room"):
            body = dict(event.body)
            if body.pop("held_out"):
                body["reasons"] = [{"code": reason["code"]} for reason in body["reasons"]]
                body["lesson"] = (
                    "confirmed by the clean room" if body["accepted"] else "not confirmed by the clean room"
                )
                body["speeds"] = []
            entries.append({"stage": event.kind, "time": event.time, **body})
        return entries

    # Telling

    def _summary(self) -> None:
        judged = {(event.body["sha256"], event.body["base"]): event.body for event in self.ledger.events("judged")}
        rooms = {(event.body["sha256"], event.body["base"]): event.body for event in self.ledger.events("clean-room")}
        rounds = [Round(body, rooms.get(key)) for key, body in judged.items()]
        floor = self.supervisor.floor(self._base())
        self.console.print(loop_table(self.supervisor.task, rounds, floor))
        baseline = self.ledger.baseline(self.supervisor.target.base)
        if baseline.candidate:
            self._say(f"baseline is now {baseline.commit[:12]}: the task's start plus {baseline.candidate}")
        else:
            self._say("no candidate was confirmed; the baseline stays as it was")
        self._say(f"{time.monotonic() - self.began:.0f} s in all; every sample and verdict is in {self.ledger.path}")

    def _progress(self, text: str) -> None:
        self.console.print(f"    {text}", markup=False, style="dim")

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False)


def confirm_alone(supervisor: Supervisor, name: str) -> int:
    """Run the clean room for a candidate of the ledger, named as there or by the start of its digest.

    Raises:
        CandidateError: the ledger has no such candidate.
    """
    found = None
    for event in supervisor.ledger.events("candidate"):
        candidate = Candidate.from_json(event.body)
        if candidate.name == name or (len(name) >= 6 and candidate.sha256.startswith(name)):
            found = (candidate, event.body["base"])
    if found is None:
        known = ", ".join(sorted({event.body["name"] for event in supervisor.ledger.events("candidate")})) or "none"
        raise CandidateError(f"--rsi-confirm {name!r} is not in ledger {supervisor.ledger.path}; it has: {known}")
    out = console()
    with supervisor.log(f"{found[0].name}-clean-room") as output:
        receipts = supervisor.confirm(*found, output=output, progress=out.print)
    accepted = supervisor.accepted_commit(receipts, *found) is not None
    out.print(_lesson(receipts, receipts.verdicts[-1] if receipts.verdicts else None, accepted=accepted), markup=False)
    return PASSED if accepted else FAILED


def _lesson(receipts: Receipts, verdict: dict[str, Any] | None, *, accepted: bool) -> str:
    """Return in one sentence what a judgement taught."""
    if verdict is None:
        return f"not judged: {receipts.error or 'the judge process ended without a verdict'}"
    if accepted:
        return f"accepted: {speed_text(verdict)}"
    if verdict["reasons"]:
        first = verdict["reasons"][0]
        more = f" (and {len(verdict['reasons']) - 1} more)" if len(verdict["reasons"]) > 1 else ""
        return f"rejected by {first['code']}: {first['text']}{more}"
    return "not accepted: the judge process did not report every item"
