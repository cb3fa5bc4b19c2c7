"""``wer``: wrong, missing and invented words; what ``cer`` shares with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from guards.family import Family, JudgesTimedRequests, Name, Number
from guards.heard import draw, heard
from guards.judge_asr import RECOGNISER, require_judge, text_errors, transcribe
from guards.noninferiority import SHARE, Comparison, absolute, nothing_heard, result
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guards.heard import HeardPair
    from guards.judge_asr import Measure, TextErrors
    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import Evidence, GuardResult, Outcome

RUNAWAY = 0.5
FINE = 0.25


@dataclass(frozen=True, slots=True)
class ErrorRateGuard(JudgesTimedRequests):
    """Hears words: error rate of a judge's transcripts against the texts asked for. Unit: share of words or characters.

    Corpus rate (errors over length) by the bootstrap over requests, and runaways by themselves: requests with more than
    half of their words wrong where the baseline has at most a quarter; there may be ``runaways`` of them. At most
    ``requests`` of each workload are heard, by the recogniser ``model``.
    """

    max: float | None
    worse_by: float
    requests: int
    runaways: int
    model: str = RECOGNISER
    name: Measure = "wer"

    def check(self, evidence: Evidence) -> GuardResult:
        """Transcribe a draw of the answers and compare their errors.

        Raises:
            JudgeModelError: the recogniser is not installed, or does not know the language.
        """
        pairs = draw(heard(evidence), self.requests, evidence.seed)
        if not pairs:
            return nothing_heard(self.name)
        before = [self._errors(pair, pair.baseline, evidence) for pair in pairs]
        if not any(errors.length for errors in before):
            return nothing_heard(self.name, "no text with words")
        compared = [(pair, old) for pair, old in zip(pairs, before, strict=True) if pair.candidate is not None]
        if not compared:
            return result(self.name, [absolute(self.name, SHARE, corpus_rate(before), self.max)], len(pairs))
        kept = [pair for pair, _ in compared]
        after = [self._errors(pair, pair.theirs, evidence) for pair in kept]
        before = [old for _, old in compared]
        findings = [self._corpus(kept, before, after, evidence), self._runaways(kept, before, after)]
        return result(self.name, findings, len(kept))

    def _errors(self, pair: HeardPair, audio: Audio, evidence: Evidence) -> TextErrors:
        transcript = transcribe(audio, evidence.language, self.model)
        return text_errors(pair.request.input, transcript, evidence.language, self.name)

    def _corpus(
        self, pairs: Sequence[HeardPair], before: Sequence[TextErrors], after: Sequence[TextErrors], evidence: Evidence
    ) -> Finding:
        lengths = np.array([errors.length for errors in before], dtype=np.float64)
        more = np.array([new.errors - old.errors for old, new in zip(before, after, strict=True)], dtype=np.float64)
        return Comparison(
            label=self.name,
            unit=SHARE,
            baseline=corpus_rate(before),
            candidate=corpus_rate(after),
            # The mean of these is the difference of the corpus rates.
            differences=more / max(lengths.mean(), 1e-9),
            ids=[pair.request.id for pair in pairs],
            margin=self.worse_by,
            limit=self.max,
        ).finding(evidence.seed)

    def _runaways(
        self, pairs: Sequence[HeardPair], before: Sequence[TextErrors], after: Sequence[TextErrors]
    ) -> Finding:
        found = [
            (pair.request.id, new.rate - old.rate)
            for pair, old, new in zip(pairs, before, after, strict=True)
            if new.rate > RUNAWAY and old.rate <= FINE
        ]
        found.sort(key=lambda item: -item[1])
        named = ", ".join(name for name, _ in found[:5]) + (", ..." if len(found) > 5 else "")
        text = f"{len(found)} runaways" + (f" ({named})" if found else "") + f", at most {self.runaways} allowed"
        outcome: Outcome = "passed" if len(found) <= self.runaways else "failed"
        return Finding(
            outcome, text, value=float(len(found)), unit="requests", worst=tuple(found[:5]), label="runaways"
        )


def corpus_rate(errors: Sequence[TextErrors]) -> float:
    """Return all errors over all words, or characters."""
    length = sum(found.length for found in errors)
    return sum(found.errors for found in errors) / length if length else float("nan")


def arguments(model: str) -> Mapping[str, Number | Name]:
    """Return what the markers ``wer`` and ``cer`` take, with the recogniser of who names none."""
    return {
        "max": Number(None, 0, 1),
        "worse_by": Number(0.02, 0, 1),
        "requests": Number(24, 1, 10_000, whole=True),
        "runaways": Number(0, 0, 1000, whole=True),
        "model": Name(model),
    }


def _build(**values: Any) -> ErrorRateGuard:  # noqa: ANN401  (checked numbers)
    require_judge(values["model"])
    return ErrorRateGuard(**values)


FAMILY = Family(
    marker="wer",
    signature=(
        'wer(max=None, worse_by=0.02, requests=24, runaways=0, model="whisper-tiny.en"): word error rate of a judge\'s '
        "transcripts, absolute limit and margin as shares of words; hears that many requests of each workload"
    ),
    build=_build,
    arguments=arguments(RECOGNISER),
)
