"""``seams``: clicks, gaps and repeats where an answer was put together from pieces."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guards.family import Family, JudgesTimedRequests, Number
from guards.memory import once
from guards.noninferiority import MILLISECONDS, NUMBER, Comparison, absolute, nothing_heard, result
from guards.splices import count_clicks, count_mutes, count_repeats, longest_zero_run_s, residual_ratio, seam_rank
from pytest_rsi.audio import UndecodableAudioError, playout
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guards.noninferiority import Unit
    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import Evidence, GuardResult
    from pytest_rsi.recording import Exchange

GAP_S = 0.025
"""No single answer may be mute for longer inside its speech: honest answers of one voice reached 14 ms."""
LONGER = 1.5
"""Unless the baseline's own answers are mute for that long; one may be half as long again as the longest of them."""


@dataclass(frozen=True, slots=True)
class Seams:
    """What one answer sounds like where it was put together.

    ``clicks``, ``mutes`` and ``repeats`` are counts, ``zero_run_s`` is the longest zero-run inside speech, and ``rank``
    the mean rank (0 to 1) of the client's chunk boundaries by how click-like they are: about 0.5 where nothing is
    heard of them, not a number where no boundary lies inside speech.
    """

    clicks: int
    mutes: int
    repeats: int
    zero_run_s: float
    rank: float


@dataclass(frozen=True, slots=True)
class SeamsPair:
    """The same request's seams in both arms; ``candidate`` is ``None`` when only a baseline is measured."""

    id: str
    stream: bool
    baseline: Seams
    candidate: Seams | None

    @property
    def theirs(self) -> Seams:
        """The seams that are judged: the candidate's, or the baseline's if there is none."""
        return self.baseline if self.candidate is None else self.candidate


@dataclass(frozen=True, slots=True)
class SeamsGuard(JudgesTimedRequests):
    """Hears splices: clicks, sudden mutes, repeats and zero-runs. Unit: count an answer, seconds, rank.

    All but the rank are sought in the whole of an answer, since a network puts chunks together and apart; streamed
    answers and others are judged separately. ``worse_by`` is the margin of clicks an answer, ``cuts`` that of mutes and
    of repeats, ``gap`` that of the longest zero-run, ``rank`` that of the boundaries' mean rank. Methods: ``splices``.
    Deaf to cuts that are cross-faded: ``duration`` and ``streamed`` hear those.
    """

    worse_by: float
    cuts: float
    gap: float
    rank: float
    name: str = "seams"

    def check(self, evidence: Evidence) -> GuardResult:
        """Look for splices in every pair."""
        pairs = find_seams(evidence)
        if not pairs:
            return nothing_heard(self.name)
        findings = []
        for stream in (True, False):
            chosen = [pair for pair in pairs if pair.stream == stream]
            if chosen:
                findings += self._judge(chosen, "streamed" if stream else "offline", evidence.seed)
        return result(self.name, findings, len(pairs))

    def _judge(self, pairs: Sequence[SeamsPair], mode: str, seed: int) -> list[Finding]:
        findings = [
            _compare(f"{mode} {label}", unit, figure, pairs, margin, seed)
            for label, unit, figure, margin in (
                ("clicks", NUMBER, lambda seams: float(seams.clicks), self.worse_by),
                ("mutes", NUMBER, lambda seams: float(seams.mutes), self.cuts),
                ("repeats", NUMBER, lambda seams: float(seams.repeats), self.cuts),
                ("zero-run", MILLISECONDS, lambda seams: seams.zero_run_s, self.gap),
            )
        ]
        inside = [pair for pair in pairs if math.isfinite(pair.baseline.rank + pair.theirs.rank)]
        if inside:
            findings.append(
                _compare(f"{mode} boundary rank", NUMBER, lambda seams: seams.rank, inside, self.rank, seed)
            )
        if all(pair.candidate is not None for pair in pairs):
            findings.append(_single(pairs, mode))
        return findings


def find_seams(evidence: Evidence) -> list[SeamsPair]:
    """Return the seams of all pairs that are audio in both arms. What is left out here fails ``complete``."""
    pairs = []
    for pair in evidence.pairs:
        try:
            candidate = None if pair.candidate is None else _hear(pair.candidate)
            pairs.append(SeamsPair(pair.request.id, pair.request.stream, _hear(pair.baseline), candidate))
        except UndecodableAudioError:
            continue
    return pairs


def _hear(exchange: Exchange) -> Seams:
    played = playout(exchange)
    inner = np.unique(played.ends[played.ends < len(played.audio.samples)]) if exchange.request.stream else ()
    return _listen(played.audio, tuple(int(end) for end in inner))


@once
def _listen(audio: Audio, boundaries: tuple[int, ...]) -> Seams:
    ratio = residual_ratio(audio)
    return Seams(
        clicks=count_clicks(ratio, audio.rate_hz),
        mutes=count_mutes(audio),
        repeats=count_repeats(audio),
        zero_run_s=longest_zero_run_s(audio),
        rank=seam_rank(ratio, audio, boundaries),
    )


def _compare(
    label: str,
    unit: Unit,
    figure: Callable[[Seams], float],
    pairs: Sequence[SeamsPair],
    margin: float,
    seed: int,
) -> Finding:
    before = np.array([figure(pair.baseline) for pair in pairs])
    if any(pair.candidate is None for pair in pairs):
        return absolute(label, unit, float(before.mean()), None)
    after = np.array([figure(pair.theirs) for pair in pairs])
    return Comparison(
        label=label,
        unit=unit,
        baseline=float(before.mean()),
        candidate=float(after.mean()),
        differences=after - before,
        ids=[pair.id for pair in pairs],
        margin=margin,
    ).finding(seed)


def _single(pairs: Sequence[SeamsPair], mode: str) -> Finding:
    """Judge the zero-run of every answer by itself."""
    allowed_s = max(GAP_S, LONGER * max(pair.baseline.zero_run_s for pair in pairs))
    gaps = sorted(((pair.id, pair.theirs.zero_run_s) for pair in pairs), key=lambda item: -item[1])
    over = [(name, gap_s) for name, gap_s in gaps if gap_s > allowed_s]
    text = f"{mode}: {len(over)} answers mute for over {allowed_s * 1000:.0f} ms inside speech"
    if over:
        text += f": {', '.join(f'{name} {gap_s * 1000:.0f} ms' for name, gap_s in over[:3])}"
    return Finding(
        outcome="failed" if over else "passed",
        text=text,
        value=gaps[0][1],
        limit=allowed_s,
        unit="s",
        worst=tuple(over[:5]),
        label=f"{mode} gap",
    )


FAMILY = Family(
    marker="seams",
    signature=(
        "seams(worse_by=0.2, cuts=0.1, gap=0.005, rank=0.15): no more clicks, mutes and repeats an answer, no longer "
        "zero-runs in speech, chunk boundaries no more click-like than the rest"
    ),
    build=SeamsGuard,
    arguments={
        "worse_by": Number(0.2, 0, 1000),
        "cuts": Number(0.1, 0, 1000),
        "gap": Number(0.005, 0, 10),
        "rank": Number(0.15, 0, 1),
    },
)
