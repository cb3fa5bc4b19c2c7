"""``streamed``: streamed audio unlike the offline audio of the same text and seed, asked of both arms by probes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from guards.family import Family, Number
from guards.heard import hear
from guards.noninferiority import nothing_heard, result
from guards.parity import max_error, mel_distance
from pytest_rsi.audio import UndecodableAudioError
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import Evidence, ExchangePair, GuardResult
    from pytest_rsi.recording import Exchange, SpeechRequest
    from pytest_rsi.task import Workload

KINDS = ("raw stream", "event stream")
"""What the probes ``b`` and ``c`` ask for; ``a`` is offline."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How a streamed answer differs from the offline one: seconds, share of full scale, log-mel distance.

    ``error`` is infinite where rate or length differ, ``mel`` where one is twice as long as the other.
    """

    longer_s: float
    error: float
    mel: float


@dataclass(frozen=True, slots=True)
class StreamedGuard:
    """Hears whether streaming changes the audio. Unit: full scale of samples, or log-mel distance after warping.

    The same text and seed are asked offline and streamed, raw and as events. Where the baseline's streamed answers are
    its offline ones (as long, no sample off by more than ``max_error``), so must the candidate's be. Where they are
    not, their mean log-mel distance may be ``worse_by`` above the baseline's. A kind of stream that the baseline does
    not serve is not demanded.
    """

    texts: int
    max_error: float
    worse_by: float
    name: str = "streamed"

    def probes(self, source: RequestSource, workloads: Sequence[Workload]) -> Sequence[SpeechRequest]:
        """Return three requests for each text: ``1a`` offline, ``1b`` streamed raw, ``1c`` streamed as events."""
        probes: list[SpeechRequest] = []
        for number, asked in enumerate(source.draw(workloads[0], self.texts), start=1):
            seeded = replace(asked, seed=number if asked.seed is None else asked.seed)
            name = f"{self.name}-{number}"
            probes += [
                replace(seeded, id=f"{name}a", response_format="wav", stream=False, stream_format="audio"),
                replace(seeded, id=f"{name}b", response_format="pcm", stream=True, stream_format="audio"),
                replace(seeded, id=f"{name}c", response_format="pcm", stream=True, stream_format="sse"),
            ]
        return probes

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare streamed with offline answers, in each arm by itself."""
        trials = [
            [evidence.probes.get(f"{self.name}-{number}{letter}") for letter in "abc"]
            for number in range(1, self.texts + 1)
        ]
        asked = [[pair for pair in trial if pair is not None] for trial in trials]
        full = [trial for trial in asked if len(trial) == 3]
        if not full:
            return nothing_heard(self.name, "no probe was sent")
        findings = [
            self._judge(kind, {trial[0].request.id[:-1]: (trial[0], trial[place]) for trial in full})
            for place, kind in enumerate(KINDS, start=1)
        ]
        served = [finding for finding in findings if finding is not None]
        if not served:
            return nothing_heard(self.name, "the baseline did not answer every probe of any kind of stream")
        return result(self.name, served, 3 * len(full))

    def _judge(self, label: str, trials: Mapping[str, tuple[ExchangePair, ExchangePair]]) -> Finding | None:
        """Judge one kind of stream; ``None`` where the baseline does not serve it."""
        ours: dict[str, Likeness] = {}
        theirs: dict[str, Likeness] = {}
        for name, (offline, streamed) in trials.items():
            found = likeness(offline.baseline, streamed.baseline)
            if found is None:
                return None
            ours[name] = found
        for name, (offline, streamed) in trials.items():
            if offline.candidate is None or streamed.candidate is None:
                continue
            found = likeness(offline.candidate, streamed.candidate)
            if found is None:
                text = f"{label}: {name}: the candidate did not answer every probe that the baseline answers"
                return Finding("failed", text, worst=((name, math.inf),), label=label)
            theirs[name] = found
        if all(found.error <= self.max_error for found in ours.values()):
            return self._samples(label, ours, theirs or ours)
        return self._spectra(label, ours, theirs or ours)

    def _samples(self, label: str, ours: dict[str, Likeness], theirs: dict[str, Likeness]) -> Finding:
        ranked = sorted(((name, found.error) for name, found in theirs.items()), key=lambda item: -item[1])
        name, most = ranked[0]
        good = most <= self.max_error
        if good:
            text = (
                f"{label}: samples differ from the offline answer's by at most {most:.2g}, {self.max_error:.2g} allowed"
            )
        else:
            how = f"{most:.2g} of full scale" if math.isfinite(most) else f"{theirs[name].longer_s * 1000:+.1f} ms"
            text = (
                f"{label}: {name} differs from the offline answer of the same seed by {how}; the baseline's do not, "
                f"{self.max_error:.2g} allowed"
            )
        return Finding(
            outcome="passed" if good else "failed",
            text=text,
            value=most,
            baseline=max(found.error for found in ours.values()),
            limit=self.max_error,
            unit="full scale",
            worst=tuple(ranked[:5]),
            label=label,
        )

    def _spectra(self, label: str, ours: dict[str, Likeness], theirs: dict[str, Likeness]) -> Finding:
        before, after = (sum(found.mel for found in each.values()) / len(each) for each in (ours, theirs))
        allowed = before + self.worse_by
        good = after <= allowed
        ranked = sorted(((name, found.mel) for name, found in theirs.items()), key=lambda item: -item[1])
        text = (
            f"{label}: mel distance to the offline answer {after:.3f} vs {before:.3f}, "
            f"{'at most' if good else 'over'} {allowed:.3f}; the baseline's samples differ too"
        )
        if not good:
            text += f"; worst {ranked[0][0]} ({ranked[0][1]:.3f})"
        return Finding(
            outcome="passed" if good else "failed",
            text=text,
            value=after,
            baseline=before,
            limit=allowed,
            unit="1",
            worst=tuple(ranked[:5]),
            label=label,
        )


def likeness(offline: Exchange, streamed: Exchange) -> Likeness | None:
    """Return how a streamed answer differs from the offline one, or ``None`` if one of them is not audio."""
    try:
        whole, parts = hear(offline), hear(streamed)
    except UndecodableAudioError:
        return None
    longer_s = parts.duration_s - whole.duration_s
    return Likeness(longer_s, max_error(whole, parts), mel_distance(whole, parts))


FAMILY = Family(
    marker="streamed",
    signature=(
        "streamed(texts=2, max_error=0.001, worse_by=0.1): streamed audio is the offline audio of the same text and "
        "seed, raw and as events, as closely as the baseline's"
    ),
    build=StreamedGuard,
    arguments={
        "texts": Number(2, 1, 20, whole=True),
        "max_error": Number(1e-3, 0, 1),
        "worse_by": Number(0.1, 0, 10),
    },
)
