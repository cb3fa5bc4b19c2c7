"""``tail``: the last word cut."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from guards.family import Family, JudgesTimedRequests, Number
from guards.heard import draw, heard
from guards.judge_asr import normalise, require_judge, transcribe
from guards.mel import align, log_mel
from guards.memory import once
from guards.noninferiority import MILLISECONDS, SHARE, Comparison, nothing_heard, result, worst_first
from guards.speech import find_speech
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from guards.heard import HeardPair
    from guards.speech import Speech
    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import Evidence, GuardResult, Outcome

ABRUPT_DB = -40.0
ABRUPT_STEP_DB = 15.0
"""An ending is abrupt if its last 20 ms are above -40 dB re the loudest speech and 15 dB over the baseline's."""
LAST_WORDS = 3
"""The last word counts as heard among the last three of a transcript: a judge may split or add one."""
CHANCE = 0.05


@dataclass(frozen=True, slots=True)
class TailGuard(JudgesTimedRequests):
    """Hears endings, four ways. Unit: seconds, or a share of requests.

    Answers whose sound stops at full level; the silence after speech (``trail``, seconds, both directions); how much of
    the baseline's end has no counterpart when the two are aligned with a free end (``end``, seconds); and, on
    ``requests`` of each workload, last words missing in the judge's transcript (``words``, share of requests).
    """

    trail: float
    end: float
    words: float
    requests: int
    name: str = "tail"

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare the endings of every pair.

        Raises:
            JudgeModelError: the judge is not installed, or does not know the language.
        """
        ended = [_Ending.of(pair) for pair in heard(evidence)]
        endings = [ending for ending in ended if ending is not None]
        if not endings:
            return nothing_heard(self.name, "no request with speech from both arms")
        if all(ending.pair.candidate is None for ending in endings):
            worst_db = max(ending.before.tail_db for ending in endings)
            text = f"nothing to compare with; the last 20 ms are at most {worst_db:.0f} dB re the loudest speech"
            return result(self.name, [Finding("passed", text)], len(endings))
        ids = [ending.pair.request.id for ending in endings]
        trails = [(ending.before.trail_s, ending.after.trail_s) for ending in endings]
        ends = [(0.0, ending.missing_s()) for ending in endings]
        findings = [
            _abrupt(endings),
            _compare("missing end", ids, ends, self.end, evidence.seed, two_sided=False),
            _compare("silence after speech", ids, trails, self.trail, evidence.seed, two_sided=True),
        ]
        if not any(finding.outcome == "failed" for finding in findings):
            # Listening costs a hundred times as much, and could not save the candidate any more.
            findings.append(self._last_words([ending.pair for ending in endings], evidence))
        return result(self.name, findings, len(endings))

    def _last_words(self, pairs: Sequence[HeardPair], evidence: Evidence) -> Finding:
        drawn = [pair for pair in draw(pairs, self.requests, evidence.seed) if normalise(pair.request.input)]
        if not drawn:
            return Finding("undecided", "no text with words")
        before = np.array([_lacks_last_word(pair, pair.baseline, evidence) for pair in drawn], dtype=np.float64)
        after = np.array([_lacks_last_word(pair, pair.theirs, evidence) for pair in drawn], dtype=np.float64)
        return Comparison(
            label="last words not heard",
            unit=SHARE,
            baseline=float(before.mean()),
            candidate=float(after.mean()),
            differences=after - before,
            ids=[pair.request.id for pair in drawn],
            margin=self.words,
        ).finding(evidence.seed)


@dataclass(frozen=True, slots=True, eq=False)
class _Ending:
    """How both arms end one request."""

    pair: HeardPair
    before: Speech
    after: Speech

    @classmethod
    def of(cls, pair: HeardPair) -> _Ending | None:
        before, after = find_speech(pair.baseline), find_speech(pair.theirs)
        return None if before is None or after is None else cls(pair, before, after)

    @property
    def abrupt(self) -> bool:
        """Whether the candidate's sound stops where the baseline's fades."""
        return self.after.tail_db > max(ABRUPT_DB, self.before.tail_db + ABRUPT_STEP_DB)

    @property
    def abrupt_before(self) -> bool:
        """Whether it is the other way round."""
        return self.before.tail_db > max(ABRUPT_DB, self.after.tail_db + ABRUPT_STEP_DB)

    def missing_s(self) -> float:
        """Return the net length of speech at the end that only the baseline has, in seconds."""
        return missing_s(self.pair.baseline, self.pair.theirs)


@once
def missing_s(before: Audio, after: Audio) -> float:
    """Return the net length of speech at the end that only the first answer has, in seconds; 0 where one is silent.

    Net of what only the second has, since an honest rerun may fall short by a little either way.
    """
    first, second = _spoken(before), _spoken(after)
    if first is None or second is None:
        return 0.0
    lost = len(first) - align(second, first).open_end
    gained = len(second) - align(first, second).open_end
    return 0.010 * (lost - gained)


def _spoken(audio: Audio) -> NDArray[np.float32] | None:
    speech = find_speech(audio)
    if speech is None:
        return None
    first = round(speech.lead_s / 0.010)
    return log_mel(audio)[first : first + max(1, round(speech.span_s / 0.010))]


def _compare(
    label: str,
    ids: Sequence[str],
    values_s: Sequence[tuple[float, float]],
    margin_s: float,
    seed: int,
    *,
    two_sided: bool,
) -> Finding:
    old, new = np.array(values_s, dtype=np.float64).T
    return Comparison(
        label=label,
        unit=MILLISECONDS,
        baseline=float(old.mean()),
        candidate=float(new.mean()),
        differences=new - old,
        ids=ids,
        margin=margin_s,
        better="same" if two_sided else "lower",
    ).finding(seed)


def _abrupt(endings: Sequence[_Ending]) -> Finding:
    """Judge by the exact sign test; a single one is enough where the baseline never ends so."""
    found = [ending for ending in endings if ending.abrupt]
    worse, better = len(found), sum(ending.abrupt_before for ending in endings)
    steps = np.array([ending.after.tail_db - ending.before.tail_db for ending in found])
    worst = worst_first([ending.pair.request.id for ending in found], steps)
    text = f"{worse} answers end abruptly where the baseline's do not"
    if better:
        text += f", {better} the other way round"
    if worst:
        text += f"; worst {worst[0][0]} (last 20 ms {worst[0][1]:+.0f} dB)"
    chance = sum(math.comb(worse + better, k) for k in range(worse, worse + better + 1)) / 2 ** (worse + better)
    outcome: Outcome = "passed"
    if worse > better:
        outcome = "failed" if not better or chance < CHANCE else "undecided"
    return Finding(outcome, text, value=worse / len(endings), unit="1", worst=worst)


def _lacks_last_word(pair: HeardPair, audio: Audio, evidence: Evidence) -> bool:
    last = normalise(pair.request.input).split()[-1]
    return last not in normalise(transcribe(audio, evidence.language)).split()[-LAST_WORDS:]


def _build(**values: Any) -> TailGuard:  # noqa: ANN401  (checked numbers)
    require_judge()
    return TailGuard(**values)


FAMILY = Family(
    marker="tail",
    signature=(
        "tail(trail=0.020, end=0.030, words=0.10, requests=24): endings cut, by level, by silence and by alignment "
        "(seconds), and by last words in the judge's transcripts (share of requests)"
    ),
    build=_build,
    arguments={
        "trail": Number(0.020, 0, 10),
        "end": Number(0.030, 0, 10),
        "words": Number(0.10, 0, 1),
        "requests": Number(24, 1, 10_000, whole=True),
    },
)
