"""Guards that judge a voice: whose it is, and how it sounds. Real speech, the built-in models."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pluggy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import istft, resample, stft

from guards import models, mos, speaker, voice_models
from guards.memory import once
from pytest_rsi import hookspec
from pytest_rsi.audio import Audio
from tests import voice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_rsi.guard import ExchangePair, Finding, GuardResult

LINE_HZ = 16_000


@pytest.fixture(autouse=True, scope="module")
def built_in_models() -> Iterator[None]:
    """Let guards find these models, whatever plugins this run has."""
    kept = list(models._hooks)
    plugins = pluggy.PluginManager("pytest")
    plugins.add_hookspecs(hookspec)
    plugins.register(voice_models)
    models.use_hooks(plugins.hook)
    yield
    models._hooks[:] = kept
    models.load.cache_clear()


def speaker_of(after: Sequence[voice.Samples] | None, **arguments: Any) -> GuardResult:
    return speaker.FAMILY.make(**arguments).check(voice.evidence(voice.pairs(voice.speak(1), after)))


def mos_of(after: Sequence[voice.Samples] | None, count: int = 12, **arguments: Any) -> GuardResult:
    made = voice.pairs(voice.speak(1), after, only=range(count))
    return mos.FAMILY.make(**arguments).check(voice.evidence(made))


def finding(result: GuardResult, label: str) -> Finding:
    return next(found for found in result.findings if found.label == label)


def spoilt(fault: voice.Fault, only: Sequence[int] | None = None, seed: int = 1) -> list[voice.Samples]:
    return voice.spoilt(voice.speak(seed), fault, only)


def pitch(semitones: float) -> voice.Fault:
    """Raise pitch and formants: the recording played faster."""
    return lambda samples: resample(samples, round(len(samples) / 2 ** (semitones / 12))).astype(np.float32)


def drift(semitones: float) -> voice.Fault:
    """Let the second half be another voice."""

    def fault(samples: voice.Samples) -> voice.Samples:
        middle = len(samples) // 2
        return np.concatenate([samples[:middle], pitch(semitones)(samples[middle:])])

    return fault


def holes(seconds: float) -> voice.Fault:
    """Mute a little four times a second, as a chunk boundary may."""

    def fault(samples: voice.Samples) -> voice.Samples:
        faulty, step = samples.copy(), voice.RATE_HZ // 4
        for start in range(step, len(faulty), step):
            faulty[start : start + round(seconds * voice.RATE_HZ)] = 0
        return faulty

    return fault


def robot(samples: voice.Samples) -> voice.Samples:
    """Lose the phase."""
    _, _, spectrum = stft(samples, nperseg=1024, noverlap=768)
    _, faulty = istft(np.abs(spectrum), nperseg=1024, noverlap=768)
    return np.clip(faulty[: len(samples)], -1, 1).astype(np.float32)


# speaker


def test_speaker_accepts_the_same_answers() -> None:
    result = speaker_of(voice.speak(1))
    assert result.outcome == "passed", result.reason
    assert finding(result, "voice").interval == (0.0, 0.0)


def test_speaker_accepts_an_honest_rerun() -> None:
    # Twelve requests instead of 24: their interval is 1.4 times as wide.
    result = speaker_of(voice.speak(2), worse_by=0.014)
    assert result.outcome == "passed", result.reason
    assert finding(result, "one voice").value > 0.94


@pytest.mark.parametrize(
    "fault",
    [voice.delay(1.0), lambda samples: samples * np.float32(0.25), voice.eight_bits],
    ids=["silence first", "-12 dB", "8 bits"],
)
def test_speaker_is_deaf_to_what_is_no_other_voice(fault: voice.Fault) -> None:
    result = speaker_of(spoilt(fault))
    assert result.outcome == "passed", result.reason


@pytest.mark.parametrize("semitones", [0.5, -1.0])
def test_speaker_hears_another_pitch(semitones: float) -> None:
    result = speaker_of(spoilt(pitch(semitones)))
    assert finding(result, "voice").outcome == "failed", result.reason


def test_speaker_hears_one_answer_in_another_voice() -> None:
    result = speaker_of(spoilt(pitch(2), [7]), worse_by=2, drift=2)
    assert result.outcome == "failed"
    assert "1 answers under 0.9 alike to the baseline's: o007" in result.reason


@pytest.mark.parametrize("semitones", [1.5, -2.0])
def test_speaker_hears_a_voice_that_drifts(semitones: float) -> None:
    result = speaker_of(spoilt(drift(semitones)), worse_by=2, same=-1)
    assert result.outcome == "failed"
    assert finding(result, "halves").outcome == "failed"
    assert "halves" in result.reason


def test_speaker_has_an_absolute_limit() -> None:
    assert speaker_of(None, min=0.8).outcome == "passed"
    assert speaker_of(None, min=0.99).outcome == "failed"
    assert "over the limit of 0.990" in speaker_of(voice.speak(1), min=0.99).reason


def test_speaker_takes_each_voice_by_itself() -> None:
    # One of the two speaks two semitones higher, in both arms: a mean of the two voices would be neither.
    higher = spoilt(pitch(2), range(6, 12))
    made = [_with_voice(pair, "low" if at < 6 else "high") for at, pair in enumerate(voice.pairs(higher, higher))]
    mixed = voice.evidence(voice.pairs(higher, higher))
    guard = speaker.FAMILY.make()
    assert guard.check(voice.evidence(made)).baseline > guard.check(mixed).baseline + 0.03


def test_speaker_hears_swapped_voices() -> None:
    higher = spoilt(pitch(2), range(6, 12))
    swapped = spoilt(pitch(2), range(6))
    made = [_with_voice(pair, "low" if at < 6 else "high") for at, pair in enumerate(voice.pairs(higher, swapped))]
    result = speaker.FAMILY.make().check(voice.evidence(made))
    assert finding(result, "voice").outcome == "failed"


def test_speaker_needs_two_texts_of_a_voice() -> None:
    made = voice.pairs(voice.speak(1), voice.speak(1), only=[0])
    for pairs in ([], made, made + voice.pairs(voice.speak(1), voice.speak(1), only=[0], stream=True)):
        result = speaker.FAMILY.make().check(voice.evidence(pairs))
        assert result.outcome == "undecided"
        assert "no two texts" in result.reason


def test_speaker_leaves_silence_to_others() -> None:
    result = speaker_of(spoilt(lambda samples: samples * 0, [3]))
    assert (result.outcome, result.requests) == ("passed", 11), result.reason


@given(seed=st.integers(0, 2**32 - 1), rate_hz=st.sampled_from([8000, 16_000, 24_000, 48_000]), size=st.integers(1, 9))
@settings(max_examples=10, deadline=None)
def test_embeddings_have_unit_length_and_are_deaf_to_gain(seed: int, rate_hz: int, size: int) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.05, size * rate_hz // 4).astype(np.float32)
    loud, quiet = (speaker.embed(Audio(noise * gain, rate_hz), "resemblyzer", "all") for gain in np.float32([1, 0.1]))
    assert loud.shape == (256,)
    assert np.linalg.norm(loud) == pytest.approx(1, abs=1e-5)
    assert loud @ quiet == pytest.approx(1, abs=1e-3)


# mos


@pytest.mark.parametrize("model", ["distillmos", "plcmos", "dnsmos"])
def test_mos_accepts_the_same_answers(model: str) -> None:
    result = mos_of(voice.speak(1), 8, model=model)
    assert result.outcome == "passed", result.reason
    assert result.guard == mos.FAMILY.make(model=model).name == f"mos-{model}"


@pytest.mark.parametrize(("model", "margin"), [("distillmos", 0.25), ("plcmos", 0.12)])
def test_mos_accepts_an_honest_rerun(model: str, margin: float) -> None:
    # The default margins are for four times as many requests and more.
    result = mos_of(voice.speak(2), model=model, worse_by=margin)
    assert result.outcome == "passed", result.reason


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        ("plcmos", voice.noise(0.001)),
        ("plcmos", holes(0.002)),
        ("plcmos", voice.eight_bits),
        ("distillmos", robot),
        ("dnsmos", voice.noise(0.003)),
    ],
    ids=["noise at 40 dB", "holes of 2 ms", "8 bits", "lost phase", "noise at 30 dB"],
)
def test_mos_hears_faults(model: str, fault: voice.Fault) -> None:
    result = mos_of(spoilt(fault), 8, model=model)
    assert result.outcome == "failed", result.reason
    assert result.value < result.baseline


def test_mos_flags_a_rise() -> None:
    noisy = spoilt(voice.noise(0.003))
    made = voice.pairs(noisy, voice.speak(1))
    result = mos.FAMILY.make(model="plcmos").check(voice.evidence(made))
    assert result.outcome == "failed"
    assert result.value > result.baseline
    assert "margin +-0.06" in result.reason


def test_mos_has_an_absolute_limit() -> None:
    assert mos_of(None, model="plcmos", min=4).outcome == "passed"
    assert mos_of(None, model="plcmos", min=4.9).outcome == "failed"
    result = mos_of(voice.speak(1), model="plcmos", min=4.9)
    assert result.outcome == "failed"
    assert "mean plcmos" in result.reason


@pytest.mark.parametrize("size", [1, 3])
def test_mos_and_speaker_of_few_requests_are_undecided(size: int) -> None:
    made = voice.pairs(voice.speak(1), voice.speak(1), only=range(size))
    for guard in (mos.FAMILY.make(model="plcmos"), speaker.FAMILY.make()):
        assert guard.check(voice.evidence(made)).outcome == "undecided"
        assert guard.check(voice.evidence([])).outcome == "undecided"


def test_mos_takes_a_model_of_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="worse_by=None, expected a number: model 'loudness' has no margin"):
        mos.FAMILY.make(model="loudness")
    monkeypatch.setattr(mos, "load", lambda kind, name: lambda audio: {"loud": float(np.abs(audio.samples).max())})
    monkeypatch.setattr(mos, "predict", once(mos.predict.__wrapped__))
    result = mos_of(spoilt(lambda samples: samples / 2), model="loudness", worse_by=0.1)
    assert (result.outcome, result.findings[0].label) == ("failed", "loud")


def test_unknown_models_are_an_error() -> None:
    with pytest.raises(models.JudgeModelError, match="judge model 'nobody' \\(speaker\\) is unknown"):
        speaker_of(voice.speak(1), model="nobody")


@pytest.mark.parametrize("make", [lambda: speaker.FAMILY.make(), lambda: mos.FAMILY.make(model="plcmos")])
def test_a_model_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch, make: Callable[[], Any]) -> None:
    absent = {
        key: replace(model, modules=(*model.modules, "no_such_model")) for key, model in voice_models.BUILT_IN.items()
    }
    monkeypatch.setattr(voice_models, "BUILT_IN", absent)
    with pytest.raises(ValueError, match=r"no_such_model not found; run pip install"):
        make()
    with pytest.raises(models.JudgeModelError, match="no_such_model not found"):
        voice_models.pytest_rsi_judge_model("mos", "plcmos")


# The models


def test_the_models_give_what_their_packages_do() -> None:
    # Computed by Resemblyzer 0.1.4 (embed_utterance at -30 dBFS), distillmos 0.9.1 and speechmos 0.0.1.1.
    time_s = np.arange(5 * LINE_HZ // 2) / LINE_HZ
    tones = sum(np.sin(2 * np.pi * hz * time_s) for hz in (220, 440, 660, 1100, 3300))
    audio = Audio((0.1 * (1 + np.sin(2 * np.pi * 4 * time_s)) * tones).astype(np.float32), LINE_HZ)
    embedding = models.load("speaker", "resemblyzer")(audio)
    assert embedding[[106, 143, 109, 63]] == pytest.approx([0.31454, 0.23606, 0.21114, 0.2107], abs=1e-4)
    assert np.sort(embedding)[-4] == pytest.approx(0.2107, abs=1e-4)
    assert models.load("mos", "distillmos")(audio)["distillmos"] == pytest.approx(2.09885, abs=1e-3)
    scores = models.load("mos", "dnsmos")(audio)
    # Our windows of a repeated clip are fewer: the clip fits into them more than three times, so all are much alike.
    assert [scores[name] for name in ("ovrl", "sig", "bak")] == pytest.approx([2.1904, 2.6563, 3.4708], abs=0.05)


@given(size=st.integers(1, 400), window=st.integers(1, 60))
def test_windows_cover_everything_and_no_more(size: int, window: int) -> None:
    samples = np.arange(max(size, window), dtype=np.float32)
    found = voice_models.windows(samples, window)
    assert {len(part) for part in found} == {window}
    assert set(np.concatenate(found)) == set(samples)
    assert len(found) == math.ceil(len(samples) / window)


@pytest.mark.parametrize(("kind", "name"), sorted(voice_models.BUILT_IN))
@pytest.mark.parametrize("size", [1, 400, 30_000])
def test_models_take_whatever_is_audio(kind: str, name: str, size: int) -> None:
    model = models.load(kind, name)
    for samples in (np.zeros(size, np.float32), np.ones(size, np.float32)):
        found = model(Audio(samples, 22_050))
        assert np.isfinite(list(found.values()) if isinstance(found, dict) else found).all()


def test_plcmos_gives_the_same_again() -> None:
    audio = Audio(voice.speak(1)[0], voice.RATE_HZ)
    model = models.load("mos", "plcmos")
    assert model(audio) == model(audio)


def _with_voice(pair: ExchangePair, name: str) -> ExchangePair:
    request = replace(pair.request, voice=name)
    return replace(
        pair,
        baseline=replace(pair.baseline, request=request),
        candidate=replace(pair.candidate, request=request),
    )
