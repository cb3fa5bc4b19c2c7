"""The contract guard: what the interface promises, asked by probes that look like any other request."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import soundfile

from fixtures.texts import spoken_words
from fixtures.workloads import SpeechRequests, is_held_out
from guards.contract import FAMILY, PROMISES
from guards.contract.refusals import named_fields
from pytest_rsi.guard import Evidence, ExchangePair, GuardResult
from pytest_rsi.recording import Chunk, Exchange, SpeechRequest
from pytest_rsi.task import load_task
from tests import voice

if TYPE_CHECKING:
    from pytest_rsi.guard import Guard
    from pytest_rsi.task import Workload

WORKLOADS = load_task("tiny_tts").workload
Server = Callable[[SpeechRequest], Exchange]
GUARDS: dict[str, Guard] = {
    promise: FAMILY.make(promise, **({"voices": ("default", "joe")} if promise == "voices" else {}))
    for promise in PROMISES
}
VOICES = {"default": 1.0, "joe": 1.25}
FIELDS = ("input", "voice", "response_format", "speed", "stream", "stream_format", "seed", "language")
FORMATS = ("wav", "pcm", "flac")


class Spoken:
    """A source of the texts that tests/voice.py speaks, each drawn once and then again."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def draw(self, workload: Workload, count: int) -> list[SpeechRequest]:
        numbers = itertools.islice(self._numbers, count)
        return [voice.request(number, stream=workload.mode == "streaming") for number in numbers]


def probes_of(guard: Guard) -> list[SpeechRequest]:
    return list(guard.probes(Spoken(), WORKLOADS))


# A server, and what may be wrong with it


def speak(
    asked: SpeechRequest, take: int | None = None, speed: float | None = None, voice_scale: float | None = None
) -> voice.Samples:
    """Speak the text with the take that the seed chooses; a voice is a pace of its own."""
    body = asked.body()
    text = body["input"] if body["input"] in voice.TEXTS else voice.TEXTS[0]
    pace = (VOICES[body["voice"]] if voice_scale is None else voice_scale) / (body["speed"] if speed is None else speed)
    take = (1 if body["seed"] < 2000 else 2) if take is None else take
    return voice.speak(take, round(pace, 4))[voice.TEXTS.index(text)]


def error(asked: SpeechRequest, status: int, message: str, param: str | None = None) -> Exchange:
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": param}}).encode()
    return Exchange(asked, 0, 0, 0.1, status, {"content-type": "application/json"}, (Chunk(0.1, body),))


def mistake_in(body: dict[str, Any]) -> str | None:
    """Return the field to blame, by the rules of the tiny engine."""
    wrong = {
        "input": not isinstance(body["input"], str) or not body["input"].strip() or len(body["input"]) > 2000,
        "voice": body["voice"] not in VOICES,
        "response_format": body["response_format"] not in FORMATS
        or (body["stream"] and body["response_format"] != "pcm"),
        "stream_format": body.get("stream_format", "audio") not in ("audio", "sse"),
        "language": body.get("language", "en") not in ("en", "de"),
        "stream": not isinstance(body["stream"], bool),
        "speed": not isinstance(body["speed"], int | float) or not 0.25 <= body["speed"] <= 4,
        "seed": not isinstance(body["seed"], int),
    }
    return next((name for name in FIELDS if wrong[name]), None)


def honest(asked: SpeechRequest, samples: voice.Samples | None = None) -> Exchange:
    param = mistake_in(asked.body())
    if param is not None:
        return error(asked, 400, f"{param} is wrong", param)
    return packed(asked, speak(asked) if samples is None else samples)


def packed(asked: SpeechRequest, samples: voice.Samples) -> Exchange:
    """Return the samples in the format asked for."""
    if asked.stream and asked.stream_format == "sse":
        data = np.round(samples * 32767).astype("<i2").tobytes()
        events = [
            {"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()},
            {"type": "speech.audio.done"},
        ]
        body, kind = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events), "text/event-stream"
    elif asked.response_format == "pcm":
        body, kind = np.round(samples * 32767).astype("<i2").tobytes(), "audio/pcm; rate=22050"
    else:
        file = io.BytesIO()
        name = asked.response_format.upper()
        soundfile.write(file, np.round(samples * 32767).astype("<i2"), voice.RATE_HZ, format=name, subtype="PCM_16")
        body, kind = file.getvalue(), f"audio/{asked.response_format}"
    headers = {"Content-Type": kind, "x-sample-rate": str(voice.RATE_HZ)}
    return Exchange(asked, 0.0, 0.0, 1.0, 200, headers, (Chunk(1.0, body),))


def drawing() -> Server:
    """Return a server that draws its take, whatever the seed."""
    takes = itertools.cycle((1, 2))
    return lambda asked: honest(asked, None if mistake_in(asked.body()) else speak(asked, take=next(takes)))


def check(
    promise: str, baseline: Server, candidate: Server | None, *, deterministic: bool = False, **arguments: Any
) -> GuardResult:
    guard = FAMILY.make(promise, **arguments) if arguments else GUARDS[promise]
    pairs = {
        asked.id: ExchangePair("probe", baseline(asked), candidate(asked) if candidate else None)
        for asked in probes_of(guard)
    }
    return guard.check(Evidence(pairs=[], probes=pairs, deterministic=deterministic))


# Every promise


@pytest.mark.parametrize("promise", PROMISES)
def test_probes_look_like_any_other_request(promise: str) -> None:
    source = SpeechRequests(load_task("tiny_tts"), 3, held_out=True)
    guard = FAMILY.make(promise)
    probes = guard.probes(source, WORKLOADS)
    assert len({probe.id for probe in probes}) == len(probes)
    assert all(probe.id.startswith(f"{guard.name}-") for probe in probes)
    texts = {probe.input for probe in probes}
    longest = WORKLOADS[0].max_words
    assert longest is not None
    assert all(is_held_out(text) and spoken_words(text) <= longest for text in texts)
    assert {probe.input for probe in source.draw(WORKLOADS[0], 20)}.isdisjoint(texts)
    if promise != "bad_requests":
        usual = set(voice.request(0, stream=True).body()) | ({"language"} if promise == "language" else set())
        assert all(set(probe.body()) <= usual for probe in probes)
    assert probes_of(GUARDS[promise]) == probes_of(GUARDS[promise])


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("deterministic", [True, False])
def test_equal_servers_pass(promise: str, deterministic: bool) -> None:
    result = check(promise, honest, honest, deterministic=deterministic)
    assert (result.outcome, result.requests) == (
        "passed",
        len(probes_of(GUARDS[promise])) - (promise in ("voices", "language")),
    ), result.reason
    assert all(finding.label for finding in result.findings)
    assert "not demanded" not in " ".join(finding.text for finding in result.findings)


@pytest.mark.parametrize("promise", PROMISES)
def test_baseline_alone_passes(promise: str) -> None:
    assert check(promise, honest, None).outcome == "passed"


@pytest.mark.parametrize("promise", PROMISES)
def test_a_broken_candidate_fails_and_a_broken_baseline_is_undecided(promise: str) -> None:
    for broken in (voice.failure, lambda asked: replace(voice.failure(asked), status=None, error="timed out")):
        assert check(promise, honest, broken).outcome == "failed"
        assert check(promise, broken, honest).outcome == "undecided"
        assert check(promise, broken, broken).outcome == "undecided"
    assert GUARDS[promise].check(Evidence(pairs=[], probes={})).outcome == "undecided"


@pytest.mark.parametrize(
    ("promise", "lacks"),
    [
        ("formats", lambda asked: asked.response_format == "flac"),
        ("formats", lambda asked: asked.stream),
        ("voices", lambda asked: asked.voice == "joe"),
        ("language", lambda asked: "language" in asked.extra),
        ("bad_requests", lambda asked: "seed" in asked.extra),
    ],
)
def test_what_the_baseline_does_not_offer_is_not_demanded(promise: str, lacks: Callable[[SpeechRequest], bool]) -> None:
    def lacking(asked: SpeechRequest) -> Exchange:
        return error(asked, 404, "no such thing") if lacks(asked) else honest(asked)

    assert check(promise, lacking, lacking).outcome == "passed"
    assert check(promise, lacking, honest).outcome == "passed"


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("size", [0, 1, 300, 5000])
def test_nothing_that_a_server_can_answer_raises(promise: str, size: int) -> None:
    rng = np.random.default_rng(size)
    for samples in (rng.uniform(-1, 1, size), np.zeros(size), np.ones(size)):
        odd: Server = lambda asked, these=samples: packed(asked, these.astype(np.float32))  # type: ignore[misc]  # noqa: E731
        assert check(promise, honest, odd).outcome == "failed"
        check(promise, odd, honest)
        check(promise, odd, odd)


@pytest.mark.parametrize("arguments", [(), ("sped",), ("seed", "voices"), (3,), (["seed"],)])
def test_an_unknown_promise_is_an_error(arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"^contract: promise .*expected one of 'seed', 'speed', 'formats', 'voices'"):
        FAMILY.make(*arguments)


@pytest.mark.parametrize(
    ("promise", "arguments", "message"),
    [
        ("seed", {"texts": 0}, "contract: texts=0, expected a whole number from 1 to 20"),
        ("speed", {"longer": 1}, "contract: unknown argument longer=1, expected texts, worse_by"),
        ("voices", {"voices": ()}, r"contract: voices=\(\), expected names such as"),
        ("voices", {"voices": ("joe", 3)}, r"contract: voices=\('joe', 3\), expected names"),
        ("voices", {"worse_by": -1}, "contract: worse_by=-1, expected a number from 0 to 10"),
        ("language", {"texts": {"en": "Hello"}}, "contract: texts={'en': 'Hello'}, expected texts by language"),
        ("language", {"texts": {}}, "contract: texts={}, expected texts by language"),
        ("bad_requests", {"too_long": 0.5}, "contract: too_long=0.5, expected a whole number"),
    ],
)
def test_a_wrong_argument_is_named(promise: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        FAMILY.make(promise, **arguments)


# seed


def test_rounding_is_not_another_answer() -> None:
    def rounding(asked: SpeechRequest) -> Exchange:
        return packed(asked, speak(asked) * np.float32(0.999 if asked.id.endswith("b") else 1.0))

    assert check("seed", honest, rounding).outcome == "passed"


def test_an_answer_cached_by_text_fails() -> None:
    cache: dict[str, voice.Samples] = {}
    result = check("seed", honest, lambda asked: packed(asked, cache.setdefault(asked.input, speak(asked))))
    assert result.outcome == "failed"
    assert "another seed gives the same audio" in result.reason


def test_an_ignored_seed_fails() -> None:
    result = check("seed", honest, drawing())
    assert result.outcome == "failed"
    assert "the same seed gives other audio" in result.reason


def test_seeds_that_the_baseline_ignores_are_not_demanded() -> None:
    fixed: Server = lambda asked: packed(asked, speak(asked, take=1))  # noqa: E731
    assert check("seed", fixed, fixed).outcome == "passed"
    lax = check("seed", drawing(), fixed)
    assert lax.outcome == "passed"
    assert "not demanded, since the baseline does not keep it either" in lax.reason


def test_another_length_is_another_answer() -> None:
    shorter: Server = lambda asked: packed(asked, speak(asked)[: -100 if asked.id.endswith("b") else None])  # noqa: E731
    assert check("seed", honest, shorter).outcome == "failed"


# speed


def faster(samples: voice.Samples, speed: float) -> voice.Samples:
    """Play samples at another speed, which changes the pitch."""
    at = np.arange(0, len(samples) - 1, speed)
    return np.interp(at, np.arange(len(samples)), samples).astype(np.float32)


@pytest.mark.parametrize("obeyed", [1.0, 0.8, 1.25])
def test_a_speed_that_is_ignored_fails(obeyed: float) -> None:
    one_speed: Server = lambda asked: packed(asked, speak(asked, speed=obeyed))  # noqa: E731
    result = check("speed", honest, one_speed)
    assert result.outcome == "failed"
    assert "length at speed" in result.reason


def test_a_speed_that_is_half_obeyed_fails() -> None:
    half: Server = lambda asked: packed(asked, speak(asked, speed=1.0 if asked.speed < 1 else asked.speed))  # noqa: E731
    result = check("speed", honest, half)
    assert result.outcome == "failed"
    assert "length at speed 0.8" in result.reason


def test_samples_played_faster_fail() -> None:
    played: Server = lambda asked: packed(asked, faster(speak(asked, speed=1.0), 1 + 0.6 * (asked.speed - 1)))  # noqa: E731
    result = check("speed", honest, played)
    assert result.outcome == "failed"
    assert "more unlike the baseline's than at 1" in result.reason


def test_speeds_of_a_server_that_draws_pass() -> None:
    assert check("speed", drawing(), drawing()).outcome == "passed"


def test_a_speed_that_the_baseline_ignores_is_not_demanded() -> None:
    slow: Server = lambda asked: packed(asked, speak(asked, speed=1.0))  # noqa: E731
    for candidate in (slow, honest):
        result = check("speed", slow, candidate)
        assert result.outcome == "passed"
        assert "not demanded" in result.reason


# formats


def other_in(place: str, change: Callable[[Exchange], Exchange]) -> Server:
    return lambda asked: change(honest(asked)) if asked.id.endswith(place) else honest(asked)


@pytest.mark.parametrize("place", ["a", "b", "c", "d", "e"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda answer: error(answer.request, 400, "not offered"), "did not answer every probe"),
        (lambda answer: packed(answer.request, speak(answer.request)[200:]), "is other audio than WAV"),
        (lambda answer: packed(answer.request, speak(answer.request) * np.float32(0.9)), "is other audio than WAV"),
        (
            lambda answer: packed(answer.request, speak(answer.request)[: voice.RATE_HZ]),
            "times as long as the baseline's",
        ),
        (lambda answer: replace(answer, headers={**answer.headers, "Content-Type": "x/y"}), "comes as 'x/y'"),
    ],
)
def test_a_format_that_is_gone_or_changed_fails(place: str, change: Callable[[Exchange], Exchange], said: str) -> None:
    result = check("formats", honest, other_in(place, change))
    assert result.outcome == "failed"
    assert said in result.reason


@pytest.mark.parametrize("place", ["b", "d", "e"])
def test_another_sample_rate_fails(place: str) -> None:
    lying = other_in(place, lambda answer: replace(answer, headers={**answer.headers, "x-sample-rate": "24000"}))
    result = check("formats", honest, lying)
    assert result.outcome == "failed"
    assert "has 24000 Hz, the baseline's 22050 Hz" in result.reason


def test_formats_of_a_server_that_draws_need_only_be_about_as_long() -> None:
    assert check("formats", drawing(), honest).outcome == "passed"
    assert check("formats", drawing(), drawing()).outcome == "passed"
    assert check("formats", honest, drawing()).outcome == "failed"


def test_parameters_of_a_content_type_do_not_count() -> None:
    plain = other_in(
        "b", lambda answer: replace(answer, headers={"content-type": "Audio/PCM", "x-sample-rate": "22050"})
    )
    assert check("formats", honest, plain).outcome == "passed"


# voices and languages


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("semitones", [-1.0, 1.0, 2.0])
def test_a_voice_that_became_another_fails(semitones: float, deterministic: bool) -> None:
    def other(asked: SpeechRequest) -> Exchange:
        if asked.body()["voice"] != "joe":
            return honest(asked)
        stretched = faster(speak(asked), 2 ** (semitones / 12))
        return packed(asked, stretched)

    result = check("voices", honest, other, deterministic=deterministic)
    assert result.outcome == "failed"
    assert "voice joe" in result.reason
    assert "voice default" not in result.reason


def test_a_voice_that_is_ignored_fails_by_its_samples() -> None:
    one: Server = lambda asked: honest(asked, None if mistake_in(asked.body()) else speak(asked, voice_scale=1.0))  # noqa: E731
    result = check("voices", honest, one, deterministic=True)
    assert result.outcome == "failed"
    assert "voice joe is other audio than the baseline's of the same seed" in result.reason


def test_a_voice_of_another_pace_fails_by_its_length() -> None:
    quick: Server = lambda asked: honest(asked, None if mistake_in(asked.body()) else speak(asked, voice_scale=0.8))  # noqa: E731
    result = check("voices", honest, quick)
    assert result.outcome == "failed"
    assert "times as long as the baseline's" in result.reason


@pytest.mark.parametrize("promise", ["voices", "language"])
def test_voices_of_a_server_that_draws_pass(promise: str) -> None:
    assert check(promise, drawing(), drawing()).outcome == "passed"
    assert check(promise, honest, drawing()).outcome == "passed"


@pytest.mark.parametrize("promise", ["voices", "language"])
def test_an_unknown_one_must_be_refused(promise: str) -> None:
    lax: Server = lambda asked: packed(asked, voice.speak(1)[0]) if "unknown" in asked.id else honest(asked)  # noqa: E731
    result = check(promise, honest, lax)
    assert result.outcome == "failed"
    assert "gets status 200 and audio, from the baseline status 400" in result.reason
    assert check(promise, lax, lax).outcome == "passed"


def test_languages_are_asked_with_their_own_texts() -> None:
    guard = FAMILY.make("language", texts={"en": (), "de": ("Guten Morgen.", "Auf Wiedersehen.")})
    asked = [(probe.body()["language"], probe.input) for probe in probes_of(guard)]
    assert asked[0] == asked[1] == ("en", voice.TEXTS[0])
    assert asked[2:6] == [("de", "Guten Morgen.")] * 2 + [("de", "Auf Wiedersehen.")] * 2
    assert asked[6][0] == "qx"


def test_a_language_that_is_gone_fails() -> None:
    texts = {"en": (), "de": ("Guten Morgen.",)}

    def english(asked: SpeechRequest) -> Exchange:
        return error(asked, 400, "no", "language") if asked.body()["language"] == "de" else honest(asked)

    result = check("language", honest, english, texts=texts)
    assert result.outcome == "failed"
    assert "contract-language-2: the candidate did not answer" in result.reason
    assert check("language", english, english, texts=texts).outcome == "passed"


# bad_requests


def test_bad_requests_ask_for_every_field() -> None:
    blamed = [mistake_in(probe.body()) for probe in probes_of(GUARDS["bad_requests"])]
    assert set(blamed) == set(FIELDS) - {"language"}
    assert None not in blamed
    assert len(probes_of(GUARDS["bad_requests"])[-1].body()["input"]) == 5000
    assert len(probes_of(FAMILY.make("bad_requests", too_long=0))) == len(blamed) - 1


@pytest.mark.parametrize("number", range(1, 16))
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda asked: replace(packed(asked, voice.speak(1)[0]), request=asked), "gets status 200"),
        (voice.failure, "gets status 500"),
        (lambda asked: error(asked, 400, "no"), "is refused without naming"),
        (lambda asked: error(asked, 400, "bad request", "model"), "is refused without naming"),
    ],
)
def test_a_refusal_that_is_gone_fails(number: int, answer: Server, said: str) -> None:
    name = f"contract-bad_requests-{number}"
    result = check("bad_requests", honest, lambda asked: answer(asked) if asked.id == name else honest(asked))
    assert result.outcome == "failed"
    assert result.reason.startswith(f"{name}: ")
    assert said in result.reason


def test_other_words_and_another_status_of_the_class_pass() -> None:
    def other(asked: SpeechRequest) -> Exchange:
        param = mistake_in(asked.body())
        detail = json.dumps({"detail": [{"loc": ["body", param], "msg": "?"}]}).encode()
        return replace(error(asked, 422, "?"), chunks=(Chunk(0.1, detail),))

    assert check("bad_requests", honest, other).outcome == "passed"


def test_a_baseline_that_names_no_field_demands_none() -> None:
    silent: Server = lambda asked: error(asked, 400, "no")  # noqa: E731
    assert check("bad_requests", silent, silent).outcome == "passed"
    assert check("bad_requests", silent, honest).outcome == "passed"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"error": {"message": "speed is wrong", "param": "seed"}}', {"seed"}),
        (b'{"error": {"message": "speed is wrong", "param": null}}', {"speed"}),
        (b'{"detail": [{"loc": ["body", "voice"], "msg": "input"}]}', {"voice"}),
        (b'{"detail": "response_format must be wav"}', {"response_format"}),
        (b'{"error": "seed", "detail": [3, {"loc": 4}]}', {"seed"}),
        (b"Bad Request: input", {"input"}),
        (b"[" * 100_000, set()),
        (b"\xff\x00", set()),
        (b"null", set()),
        (b"", set()),
    ],
)
def test_fields_that_an_error_names(body: bytes, names: set[str]) -> None:
    assert named_fields(body) == names
