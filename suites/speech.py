"""``TextToSpeech``: the tests that every synthesis task has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fixtures.benchmark import RECORDED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_rsi.audit import Audit
    from pytest_rsi.candidate import Candidate
    from pytest_rsi.verdict import Verdict


class TextToSpeech:
    """Base of a synthesis suite: subclass it, and say with markers what must not get worse."""

    def test_patch(self, judgement: Verdict) -> None:
        """The candidate is allowed, compiles, starts and answers."""
        failed = [stage for stage in judgement.stages if stage.outcome == "failed"]
        if failed and failed[0].name in ("policy", "build", "smoke"):
            pytest.fail(f"{failed[0].name}: {failed[0].text}", pytrace=False)

    @pytest.mark.guard
    def test_guard(self, guard: str, judgement: Verdict) -> None:
        """Nothing that this guard sees got worse."""
        result = next((result for result in judgement.guards if result.guard == guard), None)
        if result is None:
            pytest.fail(f"not measured: {_refusal(judgement)}", pytrace=False)
        if result.outcome != "passed":
            pytest.fail(f"{result.outcome}: {result.reason}", pytrace=False)

    @pytest.mark.benchmark(timer=RECORDED)
    def test_throughput(self, workload: str, judgement: Verdict, replay: Callable[[Verdict, str], None]) -> None:
        """Requests per second in one workload, and not slower than the baseline by more than the tolerance."""
        speed = next((speed for speed in judgement.speeds if speed.workload == workload), None)
        if speed is None or not speed.block_s:
            pytest.fail(f"not measured: {_refusal(judgement) or 'no request was answered'}", pytrace=False)
        replay(judgement, workload)
        slower = [reason.text for reason in judgement.reasons if reason.code == f"slower:{workload}"]
        if slower:
            pytest.fail(slower[0], pytrace=False)

    def test_speedup(self, judgement: Verdict) -> None:
        """The candidate is faster over all workloads, by more than noise and more than the task asks for."""
        if judgement.status == "rejected":
            pytest.fail(_refusal(judgement), pytrace=False)

    def test_audit(self, fault: str, audit: Audit) -> None:
        """This fault is caught at the size that the task names, on same-seed and on other-seed pairs."""
        escapes = audit.escapes(fault)
        if escapes:
            pytest.fail("; ".join(escapes), pytrace=False)

    def test_false_alarms(self, honest_guard: str, audit: Audit) -> None:
        """This guard lets honest pairs pass."""
        alarms = audit.too_many_alarms(honest_guard)
        if alarms:
            pytest.fail("; ".join(alarms), pytrace=False)

    def test_known_answer(self, candidate: Candidate, judgement: Verdict) -> None:
        """The verdict, and its reason, are what the patch's header expects."""
        codes = [reason.code for reason in judgement.reasons]
        right = judgement.status == candidate.expect and (
            judgement.status == "accepted" or bool(set(codes) & set(candidate.reasons))
        )
        if not right:
            wanted = candidate.expect or ""
            wanted += f" by {' or '.join(candidate.reasons)}" if candidate.reasons else ""
            pytest.fail(f"expected {wanted}; got {judgement.status}: {_refusal(judgement)}", pytrace=False)


def _refusal(verdict: Verdict) -> str:
    return "; ".join(f"{reason.code}: {reason.text}" for reason in verdict.reasons) or verdict.decision
