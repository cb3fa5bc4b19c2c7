"""The streamed guard: streams that differ from the offline answer of the same text and seed, found by probes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from guards.streamed import FAMILY
from pytest_rsi.guard import Evidence, ExchangePair, GuardResult
from pytest_rsi.recording import Chunk, Exchange, SpeechRequest
from pytest_rsi.task import Workload
from tests import voice

GUARD = FAMILY.make()
OFFLINE = Workload(name="offline", mode="offline", concurrency=1, requests=4)
Server = Callable[[SpeechRequest], Exchange]
Change = Callable[[voice.Samples, str], voice.Samples]
"""What a server does to samples of the kind ``a`` (offline), ``b`` (raw stream) or ``c`` (events)."""


class Source:
    """Draws the texts of the voice in turn."""

    def draw(self, workload: Workload, count: int) -> list[SpeechRequest]:
        return [voice.request(index, stream=workload.mode == "streaming") for index in range(count)]


PROBES = GUARD.probes(Source(), [OFFLINE])


def serve(change: Change = lambda samples, kind: samples, *, lacking: str = "") -> Server:
    def answer(asked: SpeechRequest) -> Exchange:
        kind = asked.id[-1]
        if kind in lacking:
            return voice.failure(asked, status=400)
        samples = change(voice.speak(1)[voice.TEXTS.index(asked.input)], kind)
        whole = voice.answer(asked, samples)
        return _events(whole) if kind == "c" else whole

    return answer


def _events(whole: Exchange) -> Exchange:
    chunks = [
        Chunk(chunk.time_s, _event("delta", audio=base64.b64encode(chunk.data).decode())) for chunk in whole.chunks
    ]
    return replace(whole, chunks=(*chunks, Chunk(whole.finished_s, _event("done"))))


def _event(kind: str, **fields: str) -> bytes:
    return b"data: " + json.dumps({"type": f"speech.audio.{kind}"} | fields).encode() + b"\n\n"


def check(baseline: Server, candidate: Server | None) -> GuardResult:
    probes = {
        asked.id: ExchangePair("probe", baseline(asked), candidate(asked) if candidate else None) for asked in PROBES
    }
    return GUARD.check(Evidence(pairs=[], probes=probes))


def streams(fault: voice.Fault, kinds: str = "bc") -> Change:
    return lambda samples, kind: fault(samples) if kind in kinds else samples


def take(seed: int, kinds: str) -> Change:
    """Another take of the same text for some kinds of request: a server that does not honour the seed there."""

    def change(samples: voice.Samples, kind: str) -> voice.Samples:
        if kind not in kinds:
            return samples
        index = next(i for i, spoken in enumerate(voice.speak(1)) if spoken is samples)
        return voice.speak(seed)[index]

    return change


def five_ms_dropped(samples: voice.Samples) -> voice.Samples:
    return np.delete(samples, np.s_[10_000 : 10_000 + round(0.005 * voice.RATE_HZ)])


def a_click(samples: voice.Samples) -> voice.Samples:
    faulty = samples.copy()
    faulty[12_000] += 0.002
    return faulty


@pytest.mark.parametrize("mode", ["offline", "streaming"])
def test_probes_are_one_text_and_seed_in_three_ways(mode: str) -> None:
    workload = OFFLINE.model_copy(update={"mode": mode})
    probes = GUARD.probes(Source(), [workload])
    assert [probe.id for probe in probes] == [f"streamed-{n}{letter}" for n in "12" for letter in "abc"]
    assert [len({(probe.input, probe.seed) for probe in probes[at : at + 3]}) for at in (0, 3)] == [1, 1]
    assert len({probe.input for probe in probes}) == 2
    assert [(probe.response_format, probe.stream, probe.stream_format) for probe in probes[:3]] == [
        ("wav", False, "audio"),
        ("pcm", True, "audio"),
        ("pcm", True, "sse"),
    ]


def test_streams_that_are_the_offline_answer_pass() -> None:
    found = check(serve(), serve())
    assert (found.outcome, found.requests) == ("passed", 6), found.reason
    assert check(serve(), None).outcome == "passed"


@pytest.mark.parametrize("kinds", ["b", "c", "bc"])
@pytest.mark.parametrize(
    "fault", [five_ms_dropped, a_click, voice.eight_bits, lambda samples: -samples, voice.delay(0.001), voice.cut(0.01)]
)
def test_streams_that_differ_fail(fault: voice.Fault, kinds: str) -> None:
    found = check(serve(), serve(streams(fault, kinds)))
    assert found.outcome == "failed"
    assert [finding.outcome for finding in found.findings] == ["failed" if k in kinds else "passed" for k in "bc"]


def test_the_reason_names_the_difference() -> None:
    assert (
        "differs from the offline answer of the same seed by -5.0 ms"
        in check(serve(), serve(streams(five_ms_dropped))).reason
    )
    assert "by 0.002 of full scale" in check(serve(), serve(streams(a_click))).reason


def test_rounding_passes() -> None:
    quiet = streams(lambda samples: samples + np.float32(3 / 32768))
    assert check(serve(), serve(quiet)).outcome == "passed"


def test_a_fault_of_both_kinds_of_answer_is_not_for_this_guard() -> None:
    assert check(serve(), serve(streams(voice.eight_bits, "abc"))).outcome == "passed"


def test_what_the_baseline_does_not_keep_is_judged_by_ear() -> None:
    rerun, other = serve(take(2, "bc")), serve(take(2, "a"))
    found = check(rerun, other)
    assert found.outcome == "passed", found.reason
    assert "the baseline's samples differ too" in found.reason
    noisy = serve(lambda samples, kind: voice.noise(0.01)(take(2, "bc")(samples, kind)) if kind in "bc" else samples)
    assert check(rerun, noisy).outcome == "failed"


def test_a_kind_of_stream_that_the_baseline_does_not_serve_is_not_demanded() -> None:
    found = check(serve(lacking="c"), serve(lacking="c"))
    assert found.outcome == "passed", found.reason
    assert len(found.findings) == 1
    assert check(serve(lacking="bc"), serve()).outcome == "undecided"
    assert check(serve(lacking="a"), serve()).outcome == "undecided"


@pytest.mark.parametrize("lacking", ["a", "b", "c"])
def test_a_candidate_that_does_not_answer_fails(lacking: str) -> None:
    found = check(serve(), serve(lacking=lacking))
    assert found.outcome == "failed"
    assert "the candidate did not answer every probe that the baseline answers" in found.reason


def test_no_probe_is_undecided() -> None:
    assert GUARD.check(Evidence(pairs=[], probes={})).outcome == "undecided"
