"""``contract("formats")``: a format that is gone, or that sounds unlike the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from guards.contract.trial import (
    audio_of,
    broken,
    draw_probes,
    is_refused,
    kept,
    not_demanded,
    same_audio,
    trials,
    unanswered,
)
from guards.family import Family, Number
from guards.noninferiority import nothing_heard, result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guards.contract.trial import Trial
    from pytest_rsi.audio import Audio
    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import Evidence, Finding, GuardResult
    from pytest_rsi.recording import Exchange, Format, SpeechRequest, StreamFormat
    from pytest_rsi.task import Workload

FORMATS: dict[str, tuple[Format, bool, StreamFormat]] = {
    "wav": ("wav", False, "audio"),
    "pcm": ("pcm", False, "audio"),
    "flac": ("flac", False, "audio"),
    "streamed pcm": ("pcm", True, "audio"),
    "streamed events": ("pcm", True, "sse"),
}
"""By name: response format, whether streamed, stream format. The first is what the others are compared with."""
LETTERS = "abcde"
SHORTEST, LONGEST = 0.8, 1.25
"""Where formats are not the same audio in the baseline either, lengths stay within these ratios to the baseline's."""


@dataclass(frozen=True, slots=True)
class FormatsContract:
    """Hears whether every format still carries the same audio: the same text and seed in each.

    Content type and sample rate must be the baseline's. A format that is the same audio as WAV in the baseline must be
    so in the candidate; elsewhere it must be about as long as the baseline's.
    """

    texts: int
    name: str = "contract-formats"

    def probes(self, source: RequestSource, workloads: Sequence[Workload]) -> Sequence[SpeechRequest]:
        """Return a request in each format for each text, ``1a`` to ``1e``."""
        return [
            replace(
                asked,
                id=f"{self.name}-{number}{letter}",
                response_format=file_format,
                stream=stream,
                stream_format=stream_format,
            )
            for number, asked in enumerate(draw_probes(source, workloads, self.texts), start=1)
            for letter, (file_format, stream, stream_format) in zip(LETTERS, FORMATS.values(), strict=True)
        ]

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare each format with WAV, in each arm by itself, and its frame with the baseline's."""
        asked = trials(evidence, [f"{self.name}-{number}" for number in range(1, self.texts + 1)], LETTERS)
        if not asked:
            return nothing_heard(self.name, "no probe was sent")
        silent = [
            name
            for trial in asked
            for name, exchange in zip(FORMATS, trial.baseline, strict=True)
            if audio_of([exchange]) is None and not is_refused(exchange)
        ]
        if silent:
            return nothing_heard(self.name, f"the baseline did not answer every probe ({silent[0]})")
        findings = [_judge(trial, place) for trial in asked for place in range(len(FORMATS))]
        return result(self.name, findings, len(FORMATS) * len(asked))


def _judge(trial: Trial, place: int) -> Finding:
    label = list(FORMATS)[place]
    ours = audio_of([trial.baseline[place]])
    if ours is None:
        return not_demanded(label, f"{label} is answered")
    if not trial.candidate:
        return kept(label, f"{label} is answered")
    theirs = audio_of([trial.candidate[place]])
    if theirs is None:
        return unanswered(label, trial.name)
    types = [content_type(exchange) for exchange in (trial.baseline[place], trial.candidate[place])]
    if types[0] != types[1]:
        return broken(label, trial.name, f"{label} comes as {types[1]!r}, the baseline's as {types[0]!r}")
    if ours[0].rate_hz != theirs[0].rate_hz:
        return broken(label, trial.name, f"{label} has {theirs[0].rate_hz} Hz, the baseline's {ours[0].rate_hz} Hz")
    ratio = theirs[0].duration_s / ours[0].duration_s
    if not SHORTEST <= ratio <= LONGEST:
        return broken(label, trial.name, f"{label} is {ratio:.2f} times as long as the baseline's")
    if _like_wav(trial.baseline, ours[0]) and not _like_wav(trial.candidate, theirs[0]):
        return broken(label, trial.name, f"{label} is other audio than WAV; the baseline's is the same")
    return kept(label, f"{label} is what the baseline's is")


def _like_wav(exchanges: Sequence[Exchange], audio: Audio) -> bool:
    wav = audio_of(exchanges[:1])
    return wav is not None and same_audio(wav[0], audio)


def content_type(exchange: Exchange) -> str:
    """Return the media type of an answer without its parameters, in lower case."""
    named = {name.lower(): value for name, value in exchange.headers.items()}.get("content-type", "")
    return named.split(";")[0].strip().lower()[:80]


PROMISE = Family(
    marker="contract",
    signature='contract("formats", texts=1)',
    build=FormatsContract,
    arguments={"texts": Number(1, 1, 20, whole=True)},
)
