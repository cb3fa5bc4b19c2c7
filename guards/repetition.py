"""``repetition``: answers that loop, or that do not come to an end."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from guards.family import Family, JudgesTimedRequests, Name, Number
from guards.heard import draw, heard
from guards.judge_asr import RECOGNISER, normalise, require_judge, transcribe
from guards.mel import log_mel
from guards.memory import once
from guards.noninferiority import nothing_heard, result
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from guards.heard import HeardPair
    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import Evidence, GuardResult

TIMES = 3
"""What comes this often is a loop: speakers repeat themselves once."""
LONGEST_LOOP = 12
SCATTERED = 3
"""A phrase of so many words or more need not follow on itself; a shorter one may come again by chance."""
LEAST_LAG_S, MOST_LAG_S = 0.2, 3.0
LEAST_LOOP_S = 0.6
SAME_SOUND = 0.9
"""Mean log-mel distance below which a stretch repeats another: copies in noise had up to 0.5, speech at least 1.7."""
LOUD = 6.0
"""Frames this far below the loudest (natural-log energy, mean over bands) are left out: all silence is alike."""
_VOWELS = re.compile(r"[aeiouyäöüàâéèêëîïôûùáíóúãõåæø]+")
_WORDS = re.compile(r"\w+")
_ONE_SYLLABLE_EACH = ("CJK UNIFIED", "HIRAGANA", "KATAKANA", "HANGUL")
_DIGIT_SYLLABLES = 2.0


@dataclass(frozen=True, slots=True)
class RepetitionGuard(JudgesTimedRequests):
    """Hears runaways, three ways. Unit: requests, beyond as many as the baseline has; ``allowed`` is how many more.

    Words that come three times in a row in the judge's transcript (or a phrase of three words and more three times
    anywhere) and not in the text, on ``requests`` of each workload; a stretch of sound that follows on itself three
    times; answers more than ``longer`` times as long as their text's syllables explain, at the baseline's median pace.
    """

    longer: float
    allowed: int
    requests: int
    model: str
    name: str = "repetition"

    def check(self, evidence: Evidence) -> GuardResult:
        """Look for loops in every pair.

        Raises:
            JudgeModelError: the recogniser is not installed, or does not know the language.
        """
        pairs = heard(evidence)
        if not pairs:
            return nothing_heard(self.name)
        pace_s = _pace_s(pairs)
        findings = [
            self._count(
                "answers too long for their text", pairs, lambda pair, audio: self._is_long(pair, audio, pace_s)
            ),
            self._count("looping sounds", pairs, lambda _, audio: sound_loop_s(audio) > 0),
        ]
        if not any(finding.outcome == "failed" for finding in findings):
            drawn = draw(pairs, self.requests, evidence.seed)
            findings.append(self._count("looping words", drawn, lambda pair, audio: self._loops(pair, audio, evidence)))
        return result(self.name, findings, len(pairs))

    def _is_long(self, pair: HeardPair, audio: Audio, pace_s: float) -> bool:
        return audio.duration_s * pair.request.speed > self.longer * pace_s * max(1.0, syllables(pair.request.input))

    def _loops(self, pair: HeardPair, audio: Audio, evidence: Evidence) -> bool:
        language = evidence.language
        return loops(pair.request.input, transcribe(audio, language, self.model), language)

    def _count(self, label: str, pairs: Sequence[HeardPair], has: Callable[[HeardPair, Audio], bool]) -> Finding:
        before = {pair.request.id for pair in pairs if has(pair, pair.baseline)}
        if all(pair.candidate is None for pair in pairs):
            text = f"{len(before)} {label}" + (f" ({', '.join(sorted(before)[:5])})" if before else "")
            return Finding("passed", text, value=float(len(before)), unit="requests", label=label)
        after = [pair.request.id for pair in pairs if has(pair, pair.theirs)]
        more = len(after) - len(before)
        new = [name for name in after if name not in before]
        text = f"{len(after)} {label} vs {len(before)}, at most {self.allowed} more allowed"
        return Finding(
            outcome="passed" if more <= self.allowed else "failed",
            text=text + (f" ({', '.join(new[:5])}{', ...' if len(new) > 5 else ''})" if new else ""),
            value=float(len(after)),
            baseline=float(len(before)),
            margin=float(self.allowed),
            unit="requests",
            worst=tuple((name, 1.0) for name in new[:5]),
            label=label,
        )


def loops(text: str, transcript: str, language: str = "en") -> bool:
    """Return whether a transcript repeats words, or characters where words are not spaced, that its text does not."""
    spoken, asked = (_repeated(_tokens(each, language)) for each in (transcript, text))
    return any(count >= TIMES and count > asked.get(phrase, 0) for phrase, count in spoken.items())


def _tokens(text: str, language: str) -> list[str]:
    words = normalise(text, language).split()
    unspaced = any(_is_syllable(char) or "THAI" in unicodedata.name(char, "") for word in words for char in word)
    return list("".join(words)) if unspaced else words


def _repeated(tokens: Sequence[str]) -> dict[tuple[str, ...], int]:
    """Return how often phrases come: in a row, or anywhere (without overlap) where they are long enough."""
    found: Counter[tuple[str, ...]] = Counter()
    for size in range(1, min(LONGEST_LOOP, len(tokens)) + 1):
        ends: dict[tuple[str, ...], int] = {}
        counts: Counter[tuple[str, ...]] = Counter()
        for start in range(len(tokens) - size + 1):
            phrase = tuple(tokens[start : start + size])
            last = ends.get(phrase, -1)
            if last > start:
                continue
            in_a_row = last == start
            counts[phrase] = counts[phrase] + 1 if in_a_row or size >= SCATTERED else 1
            ends[phrase] = start + size
            found[phrase] = max(found[phrase], counts[phrase])
    return found


def syllables(text: str) -> float:
    """Estimate how many syllables a text has: groups of vowels, East Asian characters, two for a digit."""
    count = 0.0
    for word in _WORDS.findall(unicodedata.normalize("NFKC", text).lower()):
        own = sum(_is_syllable(char) for char in word)
        digits = sum(char.isdigit() for char in word)
        count += max(own + _DIGIT_SYLLABLES * digits + len(_VOWELS.findall(word)), 1.0)
    return count


def _is_syllable(char: str) -> bool:
    return unicodedata.name(char, "").startswith(_ONE_SYLLABLE_EACH)


def _pace_s(pairs: Sequence[HeardPair]) -> float:
    """Return the baseline's median seconds a syllable, at speed 1."""
    paces = [pair.baseline.duration_s * pair.request.speed / max(1.0, syllables(pair.request.input)) for pair in pairs]
    return float(np.median(paces))


@once
def sound_loop_s(audio: Audio) -> float:
    """Return the length of the longest stretch of sound that follows on itself three times, one period, in seconds.

    A period is where log-mel frames (20 bands) equal those one lag later, for two lags on end.
    """
    spectrum = log_mel(audio)
    spectrum = spectrum.reshape(len(spectrum), -1, 2).mean(axis=2)
    levels = spectrum.mean(axis=1)
    loud = levels > levels.max(initial=-np.inf) - LOUD
    longest = 0
    for lag in range(round(LEAST_LAG_S / 0.01), min(round(MOST_LAG_S / 0.01), len(spectrum) // TIMES) + 1):
        span = max((TIMES - 1) * lag, round(LEAST_LOOP_S / 0.01))
        distance = np.abs(spectrum[lag:] - spectrum[:-lag]).mean(axis=1)
        if len(distance) < span:
            continue
        both = (loud[lag:] | loud[:-lag]).astype(np.float64)
        heard_there = _sums(both, span)
        mean = _sums(distance * both, span) / np.maximum(heard_there, 1.0)
        if np.any((mean < SAME_SOUND) & (heard_there > span / 2)):
            longest = lag
    return longest * 0.01


def _sums(values: NDArray[np.float64], span: int) -> NDArray[np.float64]:
    """Return the sums of all windows, float64 [n - span + 1]."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    found: NDArray[np.float64] = total[span:] - total[:-span]
    return found


def _build(**values: Any) -> RepetitionGuard:  # noqa: ANN401  (checked numbers)
    require_judge(values["model"])
    return RepetitionGuard(**values)


FAMILY = Family(
    marker="repetition",
    signature=(
        'repetition(longer=2.0, allowed=0, requests=24, model="whisper-tiny.en"): answers that loop or do not end, how '
        "many more than the baseline has; hears words in that many requests of each workload, sounds in all"
    ),
    build=_build,
    arguments={
        "longer": Number(2.0, 1, 100),
        "allowed": Number(0, 0, 1000, whole=True),
        "requests": Number(24, 1, 10_000, whole=True),
        "model": Name(RECOGNISER),
    },
)
