"""``speaker``: another voice, or one that drifts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from guards.family import Family, JudgesTimedRequests, Name, Number
from guards.heard import draw, heard
from guards.memory import once
from guards.models import load
from guards.noninferiority import NUMBER, Comparison, absolute, nothing_heard, result
from guards.speech import find_speech
from guards.voice_models import require_model
from pytest_rsi.audio import Audio
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from guards.heard import HeardPair
    from pytest_rsi.guard import Evidence, GuardResult

    Embedding = NDArray[np.float32]
    Part = Literal["all", "first half", "second half"]

LEAST_S = 1.0
"""Less speech than this is too little to know a voice by, answer by answer."""
LEAST_HALVES_S = 2.0


@dataclass(frozen=True, slots=True)
class SpeakerGuard(JudgesTimedRequests):
    """Hears whose voice it is, by a speaker embedding of the speech. Unit: cosine, 1 for equal embeddings.

    ``worse_by`` is how much further from the baseline's voice the candidate's answers may be than the baseline's own
    are. That voice is the mean embedding of the baseline's answers of the same ``voice``, without those of the same
    text; ``min`` is the least the mean cosine may be. ``same`` is the least cosine of any one answer to the baseline's
    of the same request, where that has a second of speech. ``drift`` is how much less alike the two halves of an answer
    may be than the baseline's, mean over requests, where that has two seconds. At most ``requests`` of each workload
    are heard.

    Tasks that clone a voice add the cosine to the reference clip of the request; this guard does not look at it.
    """

    min: float | None
    worse_by: float
    same: float
    drift: float
    requests: int
    model: str
    name: str = "speaker"

    def check(self, evidence: Evidence) -> GuardResult:
        """Embed a draw of the answers and compare.

        Raises:
            JudgeModelError: the model is unknown or not installed.
        """
        spoken = [pair for pair in heard(evidence) if _seconds(pair.baseline) and _seconds(pair.theirs)]
        drawn = draw(spoken, self.requests, evidence.seed)
        voices = [(pair, voice) for pair in drawn if (voice := self._voice(pair, drawn)) is not None]
        if not voices:
            return nothing_heard(self.name, "no two texts that both arms speak in one voice")
        before = np.array([self._embed(pair.baseline) @ voice for pair, voice in voices])
        if all(pair.candidate is None for pair in drawn):
            return result(self.name, [absolute("voice", NUMBER, float(before.mean()), self.min, "higher")], len(voices))
        after = np.array([self._embed(pair.theirs) @ voice for pair, voice in voices])
        findings = [
            Comparison(
                label="voice",
                unit=NUMBER,
                baseline=float(before.mean()),
                candidate=float(after.mean()),
                differences=after - before,
                ids=[pair.request.id for pair, _ in voices],
                margin=self.worse_by,
                better="higher",
                limit=self.min,
            ).finding(evidence.seed),
            self._singles(drawn),
            *self._drift(spoken, evidence.seed),
        ]
        return result(self.name, findings, len(voices))

    def _voice(self, asked: HeardPair, pairs: Sequence[HeardPair]) -> Embedding | None:
        """Return the baseline's voice as other texts show it, or ``None`` if there are none."""
        others = [
            self._embed(pair.baseline)
            for pair in pairs
            if pair.request.voice == asked.request.voice and pair.request.input != asked.request.input
        ]
        return _unit(np.mean(others, axis=0)) if others else None

    def _singles(self, pairs: Sequence[HeardPair]) -> Finding:
        """Judge every answer by itself."""
        long = [pair for pair in pairs if _seconds(pair.baseline) >= LEAST_S]
        cosines = [(pair.request.id, float(self._embed(pair.baseline) @ self._embed(pair.theirs))) for pair in long]
        low = sorted((item for item in cosines if not item[1] >= self.same), key=lambda item: item[1])
        text = f"{len(low)} answers under {self.same:g} alike to the baseline's"
        if low:
            text += f": {', '.join(f'{name} {cosine:.2f}' for name, cosine in low[:3])}"
        return Finding(
            outcome="failed" if low else "passed",
            text=text,
            value=min((cosine for _, cosine in cosines), default=None),
            limit=self.same,
            unit=NUMBER.name,
            worst=tuple((name, cosine - 1) for name, cosine in low[:5]),
            label="one voice",
            better="higher",
        )

    def _drift(self, spoken: Sequence[HeardPair], seed: int) -> list[Finding]:
        long = draw([pair for pair in spoken if _seconds(pair.baseline) >= LEAST_HALVES_S], self.requests, seed)
        if not long:
            return []
        before, after = (
            np.array([self._embed(audio, "first half") @ self._embed(audio, "second half") for audio in arm])
            for arm in ([pair.baseline for pair in long], [pair.theirs for pair in long])
        )
        comparison = Comparison(
            label="halves",
            unit=NUMBER,
            baseline=float(before.mean()),
            candidate=float(after.mean()),
            differences=after - before,
            ids=[pair.request.id for pair in long],
            margin=self.drift,
            better="higher",
        )
        return [comparison.finding(seed)]

    def _embed(self, audio: Audio, part: Part = "all") -> Embedding:
        return embed(audio, self.model, part)


@once
def embed(audio: Audio, model: str, part: Part) -> Embedding:
    """Return the embedding of the speech in an answer or in half of it, float32 [d] of unit length; 0 for silence."""
    speech = find_speech(audio)
    if speech is None:
        return _unit(load("speaker", model)(audio))
    start, stop = (round(time_s * audio.rate_hz) for time_s in (speech.lead_s, speech.lead_s + speech.span_s))
    middle = (start + stop) // 2
    start, stop = {"all": (start, stop), "first half": (start, middle), "second half": (middle, stop)}[part]
    return _unit(load("speaker", model)(Audio(audio.samples[start:stop], audio.rate_hz)))


def _unit(embedding: Embedding) -> Embedding:
    length = float(np.linalg.norm(embedding))
    return np.asarray(embedding / length if length > 0 else embedding, dtype=np.float32)


def _seconds(audio: Audio) -> float:
    speech = find_speech(audio)
    return 0.0 if speech is None else speech.span_s


def _build(*, model: str, **values: Any) -> SpeakerGuard:  # noqa: ANN401  (checked numbers)
    require_model("speaker", model)
    return SpeakerGuard(model=model, **values)


FAMILY = Family(
    marker="speaker",
    signature=(
        "speaker(min=None, worse_by=0.010, same=0.90, drift=0.03, requests=24, model='resemblyzer'): cosine to the "
        "baseline's voice, of every answer to the baseline's, and of the halves of an answer"
    ),
    build=_build,
    arguments={
        "min": Number(None, -1, 1),
        "worse_by": Number(0.010, 0, 2),
        "same": Number(0.90, -1, 1),
        "drift": Number(0.03, 0, 2),
        "requests": Number(24, 1, 10_000, whole=True),
        "model": Name("resemblyzer"),
    },
)
