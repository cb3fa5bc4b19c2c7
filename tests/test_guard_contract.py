"""The contract guard: seeds ignored and answers cached by text, found by probes that look like any other request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from fixtures.texts import spoken_words
from fixtures.workloads import SpeechRequests, is_held_out
from guards import pytest_rsi_guards
from pytest_rsi.guard import Evidence, ExchangePair, GuardResult
from pytest_rsi.recording import Exchange, SpeechRequest
from pytest_rsi.task import load_task
from tests import voice

if TYPE_CHECKING:
    from pytest_rsi.guard import Guard
    from pytest_rsi.task import Workload

FAMILY = next(family for family in pytest_rsi_guards() if family.marker == "contract")
GUARD = FAMILY.make("seed")
WORKLOADS = load_task("tiny_tts").workload
Server = Callable[[SpeechRequest], Exchange]


class Spoken:
    """A source of the requests whose answers tests/voice.py speaks."""

    def draw(self, workload: Workload, count: int) -> list[SpeechRequest]:
        return [voice.request(index, stream=workload.mode == "streaming") for index in range(count)]


def probes_of(guard: Guard = GUARD) -> list[SpeechRequest]:
    return list(guard.probes(Spoken(), WORKLOADS))


def honest(asked: SpeechRequest) -> Exchange:
    """Speak a text of the right number with the take that the seed chooses."""
    return voice.answer(asked, voice.speak(1 + takes()[asked.seed])[text_number(asked)])


def takes() -> dict[int | None, int]:
    return {probe.seed: int(probe.id.endswith("c")) for probe in probes_of()}


def text_number(asked: SpeechRequest) -> int:
    return sorted({probe.input for probe in probes_of()}).index(asked.input)


def check(baseline: Server, candidate: Server | None) -> GuardResult:
    probes = {
        asked.id: ExchangePair("probe", baseline(asked), candidate(asked) if candidate else None)
        for asked in probes_of()
    }
    return GUARD.check(Evidence(pairs=[], probes=probes))


def test_probes_look_like_any_other_request() -> None:
    probes = probes_of()
    assert [probe.id for probe in probes] == [f"contract-seed-{n}{letter}" for n in "12" for letter in "abc"]
    assert len({probe.input for probe in probes}) == 2
    assert [len({probe.seed for probe in probes[at : at + 3]}) for at in (0, 3)] == [2, 2]
    assert {key for probe in probes for key in probe.body()} == set(voice.request(0).body())
    assert probes_of() == probes


def test_probes_come_from_where_timed_requests_come_from() -> None:
    source = SpeechRequests(load_task("tiny_tts"), 3, held_out=True)
    probes = FAMILY.make("seed", texts=6).probes(source, WORKLOADS)
    longest = WORKLOADS[0].max_words
    assert longest is not None
    assert all(is_held_out(probe.input) and spoken_words(probe.input) <= longest for probe in probes)
    assert {probe.input for probe in source.draw(WORKLOADS[0], 20)}.isdisjoint(probe.input for probe in probes)


def test_seeds_honoured_by_both_pass() -> None:
    result = check(honest, honest)
    assert (result.outcome, result.requests) == ("passed", 6), result.reason


def test_baseline_alone_passes() -> None:
    assert check(honest, None).outcome == "passed"


def test_rounding_is_not_another_answer() -> None:
    def rounding(asked: SpeechRequest) -> Exchange:
        level = 1.001 if asked.id.endswith("b") else 1.0
        exchange = honest(asked)
        return voice.answer(asked, voice.speak(1)[text_number(asked)] * level) if level > 1 else exchange

    assert check(honest, rounding).outcome == "passed"


def test_an_answer_cached_by_text_fails() -> None:
    cache: dict[str, Exchange] = {}
    result = check(honest, lambda asked: cache.setdefault(asked.input, honest(asked)))
    assert result.outcome == "failed"
    assert "another seed gives the same audio" in result.reason


def test_an_ignored_seed_fails() -> None:
    drawn = iter(range(1000))
    result = check(honest, lambda asked: voice.answer(asked, voice.speak(1 + next(drawn) % 2)[text_number(asked)]))
    assert result.outcome == "failed"
    assert "the same seed gives other audio" in result.reason


def test_what_the_baseline_does_not_keep_is_not_demanded() -> None:
    fixed: Server = lambda asked: voice.answer(asked, voice.speak(1)[text_number(asked)])  # noqa: E731
    result = check(fixed, fixed)
    assert result.outcome == "passed"
    drawn = iter(range(1000))
    careless: Server = lambda asked: voice.answer(asked, voice.speak(1 + next(drawn) % 2)[text_number(asked)])  # noqa: E731
    # The careless baseline draws the takes 1, 2, 1 for the first text: neither promise is kept.
    lax = check(careless, fixed)
    assert lax.outcome == "passed"
    assert lax.reason.startswith("not demanded, since the baseline does not keep it either")


def test_an_unanswered_probe_fails_the_candidate_and_leaves_the_baseline_undecided() -> None:
    broken: Server = lambda asked: voice.failure(asked) if asked.id.endswith("2b") else honest(asked)  # noqa: E731
    result = check(honest, broken)
    assert result.outcome == "failed"
    assert "contract-seed-2" in result.reason
    assert check(broken, honest).outcome == "undecided"
    assert GUARD.check(Evidence(pairs=[], probes={})).outcome == "undecided"


def test_another_length_is_another_answer() -> None:
    def shorter(asked: SpeechRequest) -> Exchange:
        exchange = honest(asked)
        if not asked.id.endswith("b"):
            return exchange
        return voice.answer(asked, voice.speak(1)[text_number(asked)][:-100])

    assert check(honest, shorter).outcome == "failed"


@pytest.mark.parametrize("arguments", [(), ("speed",), ("seed", "voice"), (3,)])
def test_an_unknown_promise_is_an_error(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"^contract: promise .*expected 'seed'$"):
        FAMILY.make(*arguments)
