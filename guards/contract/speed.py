"""``contract("speed")``: a speed that is ignored, half obeyed, or played faster instead of spoken faster."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from guards.contract.trial import audio_of, broken, draw_probes, not_demanded, trials, unanswered
from guards.family import Family, Number
from guards.noninferiority import nothing_heard, result
from guards.parity import mel_distance
from guards.speech import find_speech
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from guards.contract.trial import Trial
    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import Evidence, GuardResult
    from pytest_rsi.recording import Exchange, SpeechRequest
    from pytest_rsi.task import Workload

SPEEDS = (1.0, 0.8, 1.25)
OBEYED = 0.3
"""The baseline keeps a speed if it goes this share of the way (in log-time): Piper goes half of it, as it rounds up."""
UNLIKE = 0.15
"""How much more unlike the baseline's the audio may be at another speed than at speed 1 (log-mel distance)."""


@dataclass(frozen=True, slots=True)
class SpeedContract:
    """Hears whether ``speed`` is obeyed: the same text and seed at speeds 1, 0.8 and 1.25. Unit: log-ratio of time.

    The length of speech relative to that at speed 1 (mean log-ratio over ``texts``) may be ``worse_by`` off the
    baseline's: a server that obeys has 0.22. The audio must not differ more from the baseline's than it does at
    speed 1, so that samples played faster, which raise the voice, do not pass.
    """

    texts: int
    worse_by: float
    name: str = "contract-speed"

    def probes(self, source: RequestSource, workloads: Sequence[Workload]) -> Sequence[SpeechRequest]:
        """Return three requests for each text: ``1a`` at speed 1, ``1b`` slower, ``1c`` faster."""
        return [
            replace(asked, id=f"{self.name}-{number}{letter}", speed=speed)
            for number, asked in enumerate(draw_probes(source, workloads, self.texts), start=1)
            for letter, speed in zip("abc", SPEEDS, strict=True)
        ]

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare lengths of speech with those at speed 1, in each arm by itself."""
        asked = trials(evidence, [f"{self.name}-{number}" for number in range(1, self.texts + 1)], "abc")
        if not asked:
            return nothing_heard(self.name, "no probe was sent")
        ours = _stretches([trial.baseline for trial in asked])
        if ours is None:
            return nothing_heard(self.name, "the baseline did not speak in every probe")
        findings = [finding for place in (1, 2) for finding in self._judge(place, ours, asked)]
        return result(self.name, findings, 3 * len(asked))

    def _judge(self, place: int, ours: NDArray[np.float64], asked: Sequence[Trial]) -> list[Finding]:
        speed, label = SPEEDS[place], f"length at speed {SPEEDS[place]:g}"
        before = float(ours[:, place].mean())
        if before / -math.log(speed) < OBEYED:
            return [not_demanded(label, f"{label} is {math.exp(before):.2f} of that at speed 1")]
        compared = [trial for trial in asked if trial.candidate]
        if not compared:
            return [Finding("passed", f"{label} is {math.exp(before):.2f} of that at speed 1", label=label)]
        for trial in compared:
            if _stretches([trial.candidate]) is None:
                return [unanswered(label, trial.name)]
        theirs = _stretches([trial.candidate for trial in compared])
        if theirs is None:
            return [unanswered(label, compared[0].name)]
        after = float(theirs[:, place].mean())
        kept = abs(after - before) <= self.worse_by
        length = Finding(
            outcome="passed" if kept else "failed",
            text=f"{label} is {math.exp(after):.2f} of that at speed 1 vs {math.exp(before):.2f}, margin "
            f"+-{100 * math.expm1(self.worse_by):.0f} %",
            value=math.exp(after),
            baseline=math.exp(before),
            margin=math.expm1(self.worse_by),
            unit="1",
            label=label,
            better="same",
        )
        return [length, _likeness(place, compared)]


def _likeness(place: int, compared: Sequence[Trial]) -> Finding:
    """Judge how much less alike the arms are at a speed than at speed 1, mean over texts."""
    label = f"sound at speed {SPEEDS[place]:g}"
    apart = []
    for trial in compared:
        ours, theirs = audio_of(trial.baseline), audio_of(trial.candidate)
        if ours is not None and theirs is not None:
            apart.append(mel_distance(ours[place], theirs[place]) - mel_distance(ours[0], theirs[0]))
    most = float(np.mean(apart))
    if not most <= UNLIKE:
        return broken(
            label, compared[0].name, f"{label} is {most:.2f} more unlike the baseline's than at 1, {UNLIKE} allowed"
        )
    return Finding("passed", f"{label} is like the baseline's", value=most, limit=UNLIKE, unit="1", label=label)


def _stretches(answers: Sequence[Sequence[Exchange]]) -> NDArray[np.float64] | None:
    """Return the log-ratio of lengths of speech to that of the first of each text, float64 [texts, speeds]."""
    rows = []
    for exchanges in answers:
        spoken = [find_speech(audio) for audio in audio_of(exchanges) or ()]
        spans = [speech.span_s for speech in spoken if speech is not None]
        if len(spans) < len(SPEEDS):
            return None
        rows.append(np.log(np.array(spans) / spans[0]))
    return np.array(rows)


PROMISE = Family(
    marker="contract",
    signature='contract("speed", texts=4, worse_by=0.06)',
    build=SpeedContract,
    arguments={"texts": Number(4, 1, 20, whole=True), "worse_by": Number(0.06, 0, 1)},
)
