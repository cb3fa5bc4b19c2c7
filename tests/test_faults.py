"""Faults: what is injected is what it says, by measurement, and answers stay what a server could have sent."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile

from faults import pytest_rsi_faults
from pytest_rsi.audio import UndecodableAudioError, decode, playout
from pytest_rsi.recording import Chunk, Exchange
from tests import voice
from tests.voice import RATE_HZ, Samples

if TYPE_CHECKING:
    from pytest_rsi.fault import Fault

FAULTS = {fault.name: fault for fault in pytest_rsi_faults()}


def answers() -> list[Exchange]:
    """Return the same texts in every shape that an answer can have: WAV, FLAC, PCM; streamed raw, WAV and events."""
    spoken = voice.speak(1)
    made = [voice.answer(voice.request(index), spoken[index]) for index in range(3)]
    flac, pcm = io.BytesIO(), np.round(spoken[2] * 32767).astype("<i2").tobytes()
    soundfile.write(flac, spoken[1], RATE_HZ, format="FLAC", subtype="PCM_16")
    made[1] = replace(
        made[1],
        request=replace(made[1].request, response_format="flac"),
        chunks=(Chunk(made[1].finished_s, flac.getvalue()),),
    )
    made[2] = replace(
        made[2], request=replace(made[2].request, response_format="pcm"), chunks=(Chunk(made[2].finished_s, pcm),)
    )
    streamed = [voice.answer(voice.request(index, stream=True), spoken[index]) for index in range(3, 6)]
    events = [
        Chunk(chunk.time_s, event({"type": "speech.audio.delta", "audio": base64.b64encode(chunk.data).decode()}))
        for chunk in streamed[1].chunks
    ]
    done = Chunk(streamed[1].finished_s, event({"type": "speech.audio.done"}))
    streamed[1] = replace(
        streamed[1], request=replace(streamed[1].request, stream_format="sse"), chunks=(*events, done)
    )
    file = io.BytesIO()
    soundfile.write(file, spoken[5], RATE_HZ, format="WAV", subtype="PCM_16")
    body, size = file.getvalue(), 20_000
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    streamed[2] = replace(
        streamed[2],
        request=replace(streamed[2].request, response_format="wav"),
        chunks=tuple(Chunk(0.1 + 0.05 * index, part) for index, part in enumerate(parts)),
    )
    return made + streamed


def event(body: dict[str, str]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def harmed(name: str, size: float, samples: Samples, *, stream: bool = False) -> Samples:
    exchange = voice.answer(voice.request(0, stream=stream), samples)
    return decode(FAULTS[name].inject([exchange], size, seed=3)[0]).samples


def cents(before: Samples, after: Samples) -> float:
    """Return by how much the pitch moved: the median over 40 ms frames, at the same share of both, of the ratio of the
    best autocorrelation lags (60 to 300 Hz), of the louder half of frames. The frames of a voice vary more than faults.
    """
    lags = [pitch_lags(before, after, side) for side in (0, 1)]
    return float(1200 * np.median(np.log2(lags[0] / lags[1])))


def pitch_lags(before: Samples, after: Samples, side: int) -> Samples:
    frame, samples = round(0.04 * RATE_HZ), (before, after)[side].astype(np.float64)
    places = np.linspace(0, 1, 200)
    starts = np.round(places * (len(before) - frame)).astype(int)
    levels = [np.std(before[start : start + frame]) for start in starts]
    lags = []
    for place in places[np.array(levels) > np.median(levels)]:
        piece = samples[round(place * (len(samples) - frame)) :][:frame] * np.hanning(frame)
        correlation = np.fft.irfft(np.abs(np.fft.rfft(piece, 4 * frame)) ** 2)[: frame // 2]
        low, high = round(RATE_HZ / 300), round(RATE_HZ / 60)
        best = low + int(np.argmax(correlation[low:high]))
        left, top, right = correlation[best - 1 : best + 2]
        lags.append(best + 0.5 * (left - right) / (left - 2 * top + right))
    return np.array(lags, dtype=np.float32)


def band_db(samples: Samples, low: float, high: float) -> float:
    power = np.abs(np.fft.rfft(samples.astype(np.float64))) ** 2
    bins = np.fft.rfftfreq(len(samples), 1 / RATE_HZ)
    return float(10 * np.log10(power[(bins >= low) & (bins < high)].sum() + 1e-12))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_harmed_answers_are_answers(fault: Fault) -> None:
    originals = answers()
    assert list(fault.sizes) == sorted(set(fault.sizes), key=list(fault.sizes).index)
    for size in fault.sizes:
        again = fault.inject(originals, size, seed=3)
        assert again == fault.inject(originals, size, seed=3)
        assert [exchange.request for exchange in again] == [exchange.request for exchange in originals]
        changed = [new for new, old in zip(again, originals, strict=True) if new != old]
        assert changed, f"{fault.name} of {size} changed nothing"
        for exchange in changed:
            times = [chunk.time_s for chunk in exchange.chunks]
            assert times == sorted(times)
            if exchange.status == 200:
                played = playout(exchange)
                assert np.isfinite(played.audio.samples).all()
                assert played.ends[-1] == len(played.audio.samples)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=list(FAULTS))
def test_what_failed_stays_as_it_is(fault: Fault) -> None:
    failed = [voice.failure(voice.request(index, stream=bool(index % 2))) for index in range(4)]
    for exchange in fault.inject(failed, fault.sizes[-1], seed=3):
        with pytest.raises(UndecodableAudioError):
            decode(exchange)


def test_encoding_the_same_samples_changes_no_sample() -> None:
    for exchange in answers():
        quiet = FAULTS["offset"].inject([exchange], 0.0, seed=3)[0]
        assert np.array_equal(decode(quiet).samples, decode(exchange).samples)
        assert [chunk.time_s for chunk in quiet.chunks][-1] == pytest.approx(exchange.chunks[-1].time_s, abs=0.2)


@pytest.mark.parametrize(("name", "sign"), [("tail-cut", -1), ("lead-silence", 1), ("trail-silence", 1), ("gap", 1)])
def test_lengths_change_by_the_size(name: str, sign: int) -> None:
    samples = voice.speak(1)[0]
    for size in FAULTS[name].sizes:
        change_ms = 1000 * (len(harmed(name, size, samples)) - len(samples)) / RATE_HZ
        assert change_ms == pytest.approx(sign * size, abs=0.1)


@pytest.mark.parametrize("size", [50, 100, 200])
def test_pitch_moves_by_the_size_at_the_same_length(size: float) -> None:
    samples = voice.speak(1)[0]
    raised = harmed("pitch", size, samples)
    assert len(raised) == len(samples)
    assert cents(samples, raised) == pytest.approx(size, abs=15)


@pytest.mark.parametrize("size", [2, 5, 10])
def test_rate_shortens_and_keeps_the_pitch(size: float) -> None:
    samples = voice.speak(1)[0]
    faster = harmed("rate", size, samples)
    assert len(samples) / len(faster) == pytest.approx(1 + size / 100, abs=0.002)
    assert abs(cents(samples, faster)) < 15


def test_the_vocal_tract_moves_formants_and_not_the_pitch() -> None:
    samples = voice.speak(1)[0]
    moved = harmed("vocal-tract", 20, samples)
    assert abs(cents(samples, moved)) < 15
    # Envelopes moved up put more of the energy above 1 kHz.
    share = [band_db(each, 1000, 4000) - band_db(each, 100, 1000) for each in (samples, moved)]
    assert share[1] - share[0] > 1


def test_the_low_pass_takes_what_is_above_it() -> None:
    samples = voice.speak(1)[0]
    for size in (8, 5.5, 4):
        dull = harmed("low-pass", size, samples)
        assert band_db(dull, 1000 * size + 500, 11_000) < band_db(samples, 1000 * size + 500, 11_000) - 25
        assert band_db(dull, 100, 3000) == pytest.approx(band_db(samples, 100, 3000), abs=0.5)


def test_noise_has_the_ratio_it_says() -> None:
    samples = voice.speak(1)[0]
    for size in FAULTS["noise"].sizes:
        error = harmed("noise", size, samples).astype(np.float64) - samples
        assert 10 * np.log10(np.mean(samples.astype(np.float64) ** 2) / np.mean(error**2)) == pytest.approx(
            size, abs=0.5
        )


def test_seam_faults_touch_streamed_answers_only_and_only_at_seams() -> None:
    samples = voice.speak(1)[0]
    assert np.array_equal(harmed("seam-zeros", 5, samples), harmed("offset", 0.0, samples))
    streamed = harmed("seam-zeros", 5, samples, stream=True)
    changed = np.flatnonzero(streamed != harmed("offset", 0.0, samples, stream=True))
    seams = np.arange(1, len(samples) // round(voice.CHUNK_S * RATE_HZ) + 1) * round(voice.CHUNK_S * RATE_HZ)
    after = changed - seams[np.searchsorted(seams, changed, side="right") - 1]
    assert len(changed)
    assert after.max() < 0.005 * RATE_HZ + 1


def test_timing_faults_change_no_byte() -> None:
    for name in ("late", "stall", "burst", "one-in-twenty-slow"):
        originals = answers()
        late = FAULTS[name].inject(originals, FAULTS[name].sizes[-1], seed=3)
        assert [exchange.body for exchange in late] == [exchange.body for exchange in originals]
        assert any(
            new.finished_s > old.finished_s or new.chunks != old.chunks
            for new, old in zip(late, originals, strict=True)
        )


def test_mixed_up_answers_are_somebody_elses() -> None:
    originals = answers()
    mixed = FAULTS["other-text"].inject(originals, 100, seed=3)
    for index, exchange in enumerate(mixed):
        assert np.array_equal(decode(exchange).samples, decode(originals[(index + 3) % 6]).samples)
    few = FAULTS["other-text"].inject(originals, 2, seed=3)
    assert sum(new != old for new, old in zip(few, originals, strict=True)) == 1
