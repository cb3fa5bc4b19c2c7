"""What the judge hears: transcripts by a speech recogniser, and their errors against the texts asked for."""

from __future__ import annotations

import functools
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from guards.memory import once
from guards.models import load, require
from guards.recognisers import base_language, require_model

if TYPE_CHECKING:
    from pytest_rsi.audio import Audio

Measure = Literal["wer", "cer"]
RECOGNISER = "whisper-tiny.en"
"""The recogniser of markers that name none."""
_NEEDED = ("jiwer", "whisper_normalizer")
_UNSPOKEN = ("P", "S", "Z", "C")


@dataclass(frozen=True, slots=True)
class TextErrors:
    """Substituted, missing and invented words of one transcript (characters for ``cer``), and how many the text has."""

    errors: int
    length: int

    @property
    def rate(self) -> float:
        """The error rate of this text alone; above 1 where more was invented than asked for."""
        return self.errors / max(1, self.length)


def require_judge(model: str = RECOGNISER) -> None:
    """Check that the judge's packages are there.

    Raises:
        ValueError: one is not.
    """
    require(_NEEDED)
    require_model(model)


def transcribe(audio: Audio, language: str, model: str = RECOGNISER) -> str:
    """Return what a recogniser hears; equal audio is heard once.

    Raises:
        JudgeModelError: the recogniser is not installed, or does not know the language.
    """
    return _transcribe(audio, language, model)


@once
def _transcribe(audio: Audio, language: str, model: str) -> str:
    return _listen(audio, language, model)


def _listen(audio: Audio, language: str, model: str) -> str:
    return str(load("recogniser", model)(audio, language))


def text_errors(text: str, transcript: str, language: str = "en", measure: Measure = "wer") -> TextErrors:
    """Return the word or character errors of a transcript, both normalised alike (Levenshtein distance, by jiwer)."""
    import jiwer

    reference, hypothesis = (normalise(each, language, measure) for each in (text, transcript))
    if not reference:
        return TextErrors(len(hypothesis if measure == "cer" else hypothesis.split()), 0)
    process = jiwer.process_characters if measure == "cer" else jiwer.process_words
    counts = process(reference, hypothesis)
    length = len(reference if measure == "cer" else reference.split())
    return TextErrors(counts.substitutions + counts.deletions + counts.insertions, length)


def normalise(text: str, language: str = "en", measure: Measure = "wer") -> str:
    """Return the text as transcripts are compared.

    English as Whisper's evaluation spells it (Radford et al. 2022): numbers in digits, no punctuation, no contractions;
    other languages by its basic normaliser, with combining marks kept, which are vowels in Hindi and Thai. For ``cer``
    other languages keep nothing but letters, marks and digits in compatibility form (NFKC), and no language keeps
    spaces.
    """
    english = base_language(language) == "en"
    if measure == "wer":
        return str(_normaliser(english)(text)).strip()
    spoken = str(_normaliser(True)(text)) if english else unicodedata.normalize("NFKC", text).casefold()
    return "".join(char for char in spoken if unicodedata.category(char)[0] not in _UNSPOKEN)


@functools.cache
def _normaliser(english: bool) -> Any:  # noqa: ANN401  (whisper-normalizer has no types)
    from whisper_normalizer.basic import BasicTextNormalizer
    from whisper_normalizer.english import EnglishTextNormalizer

    return EnglishTextNormalizer() if english else BasicTextNormalizer(preserve_marks=True)
