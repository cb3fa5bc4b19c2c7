"""The audit: what it says was caught was, what it says was not was not, and what it never asked it does not claim."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from faults import pytest_rsi_faults
from fixtures.workloads import SpeechRequests
from guards import pytest_rsi_guards
from pytest_rsi.audit import Audit, Pool, Twins
from pytest_rsi.guard import ExchangePair, Guard, GuardResult
from pytest_rsi.judge import Judge, Settings
from pytest_rsi.report.audit import as_html, markdown, print_audit, rows
from pytest_rsi.report.terminal import console
from pytest_rsi.stats import binomial_interval
from pytest_rsi.task import AuditTable, load_task
from tests import voice

if TYPE_CHECKING:
    from pytest_rsi.guard import Evidence

FAMILIES = {family.marker: family for family in pytest_rsi_guards()}
FAULTS = {fault.name: fault for fault in pytest_rsi_faults()}
TABLE = AuditTable(
    requests=16, pool=24, draws=5, honest=12, honest_draws=10, must_catch={"tail-cut": 100.0, "gap": 10.0}
)


class Deaf:
    """A guard that lets everything pass."""

    name = "deaf"

    def __init__(self) -> None:
        self.asked = 0

    def probes(self, source: object, workloads: object) -> tuple[()]:
        return ()

    def check(self, evidence: Evidence) -> GuardResult:
        self.asked += 1
        return GuardResult("deaf", "passed", "all well")


class Nervous(Deaf):
    """A guard that lets nothing pass."""

    name = "nervous"

    def check(self, evidence: Evidence) -> GuardResult:
        return GuardResult("nervous", "failed", "something is wrong")


def make_audit(*guards: Guard, table: AuditTable = TABLE) -> Audit:
    task = load_task("tiny_tts").model_copy(update={"audit": table})
    judge = Judge(
        task=task,
        target=None,  # type: ignore[arg-type]  # the pool is given, nothing is started
        base="0" * 40,
        guards=guards,
        requests=lambda seed: SpeechRequests(task, seed, held_out=False),
        settings=Settings(seed=5),
        observe=lambda kind, body: None,
        progress=lambda text: None,
    )
    audit = Audit(judge, FAULTS)
    audit.__dict__["pool"] = pool()
    return audit


def pool() -> Pool:
    """Return twelve texts spoken with two seeds, offline and streamed."""
    pairs: dict[Any, list[ExchangePair]] = {"same-seed": [], "other-seed": []}
    for stream in (False, True):
        workload = "streaming" if stream else "offline"
        for index in range(len(voice.TEXTS)):
            takes = [
                voice.answer(voice.request(index, stream=stream, name=f"{workload}{index}{letter}"), samples[index])
                for letter, samples in (("a", voice.speak(1)), ("b", voice.speak(2)))
            ]
            later = replace(takes[1], sent_s=takes[1].sent_s + 50)
            pairs["same-seed"].append(ExchangePair(workload, takes[1], later))
            pairs["other-seed"].append(ExchangePair(workload, takes[0], later))
    return Pool({name: tuple(those) for name, those in pairs.items()})


def test_twins_are_the_same_text_with_another_seed() -> None:
    task = load_task("tiny_tts")
    source = Twins(SpeechRequests(task, 3, held_out=False), 3)
    drawn = source.draw(task.workload[0], 6)
    by_id = {request.id: request for request in drawn}
    assert len(by_id) == 6
    for request in drawn:
        other = by_id[source.twin[request.id]]
        assert other.input == request.input
        assert other.seed != request.seed
        assert source.twin[other.id] == request.id


def test_exact_guards_catch_on_same_seed_pairs_what_others_need_size_for() -> None:
    audit = make_audit(FAMILIES["parity"].make(), FAMILIES["duration"].make())
    catches = {(catch.size, catch.regime): catch for catch in audit.fault(FAULTS["lead-silence"])}
    assert all(catches[size, "same-seed"].failed == 5 for size in FAULTS["lead-silence"].sizes)
    assert catches[200, "other-seed"].failed == 5
    by_guard = {row.fault: row.by_guard for row in rows(audit.report(), "same-seed")}
    assert by_guard["lead-silence"]["parity"] == 10
    assert by_guard["lead-silence"]["duration"] in (10, 20, 80)


def test_a_deaf_evaluator_is_called_blind() -> None:
    deaf = Deaf()
    audit = make_audit(deaf)
    escapes = audit.escapes("tail-cut")
    assert [escape.split(":")[0] for escape in escapes] == [
        "tail-cut of 100 ms on same-seed pairs",
        "tail-cut of 100 ms on other-seed pairs",
    ]
    assert "0 of 5 draws caught, 5 accepted" in escapes[0]
    # It heard nothing of the largest size: it was not asked about the smaller ones.
    assert deaf.asked == 2 * TABLE.draws
    assert rows(audit.report(), "same-seed")[0].together is None


def test_what_the_task_does_not_name_may_escape() -> None:
    assert make_audit(Deaf()).escapes("pitch") == []


def test_a_nervous_guard_is_called_so() -> None:
    audit = make_audit(Nervous(), FAMILIES["parity"].make())
    told = audit.too_many_alarms("nervous")
    assert told[0] == "nervous on same-seed pairs: 10 of 10 honest draws failed, at most 1% allowed"
    assert audit.too_many_alarms("parity") == []
    found = {(alarms.guard, alarms.regime): alarms for alarms in audit.alarms}
    assert found["nervous", "same-seed"].interval == binomial_interval(10, 10)
    # Without a stated level, parity cannot judge other seeds, and does not claim to have passed.
    assert found["parity", "other-seed"].undecided == 10


def test_margins_are_what_honest_draws_need() -> None:
    audit = make_audit(FAMILIES["duration"].make())
    audit.too_many_alarms("duration")
    margins = {(margin.figure, margin.regime): margin for margin in audit.margins}
    assert margins["length", "same-seed"].needed == pytest.approx(0.0, abs=1e-9)
    needed = margins["length", "other-seed"]
    assert 0 < needed.median <= needed.needed
    # With that margin, honest draws pass.
    share = needed.needed / needed.margin * 0.015
    generous = make_audit(FAMILIES["duration"].make(worse_by=min(1.0, 1.001 * share), lead=1, trail=1, pause=1, rate=1))
    generous.too_many_alarms("duration")
    length = next(margin for margin in generous.margins if margin.figure == "length" and margin.regime == "other-seed")
    assert length.needed <= length.margin


def test_guards_with_probes_are_left_to_patches() -> None:
    audit = make_audit(FAMILIES["contract"].make("seed"), FAMILIES["parity"].make())
    assert [guard.name for guard in audit.guards] == ["parity"]


def test_reports_say_the_same_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    audit = make_audit(FAMILIES["parity"].make(), Deaf())
    audit.escapes("tail-cut")
    audit.too_many_alarms("deaf")
    report = audit.report()
    print_audit(console(), report)
    out, tables, page = capsys.readouterr().out, markdown(report), as_html(report)
    for text in (out, tables, page):
        assert "tail-cut" in text
        assert "deaf" in text
    assert "| `tail-cut` | the last sound is missing | 50 100 200 400 ms | 50 ms | parity | nothing |" in tables
    assert "100 ms *" in page
    assert "<script" not in page


@pytest.mark.parametrize(("successes", "trials"), [(0, 200), (2, 200), (20, 20), (7, 20)])
def test_binomial_intervals_are_the_exact_ones(successes: int, trials: int) -> None:
    from statsmodels.stats.proportion import proportion_confint

    expected = proportion_confint(successes, trials, alpha=0.05, method="beta")
    assert binomial_interval(successes, trials) == pytest.approx(expected, abs=1e-9)
