"""``contract("bad_requests")``: calls that the baseline refuses, and with which words."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from guards.contract.trial import audio_of, broken, draw_probes, is_refused, kept, not_demanded
from guards.family import Family, Number
from guards.noninferiority import nothing_heard, result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import Evidence, ExchangePair, Finding, GuardResult
    from pytest_rsi.recording import Exchange, SpeechRequest
    from pytest_rsi.task import Workload

FIELDS = ("input", "voice", "response_format", "speed", "stream", "stream_format", "seed", "language")
_WORD = re.compile(r"[a-z_]+")


@dataclass(frozen=True, slots=True)
class Mistake:
    """A malformed call: what is wrong with it, the field to blame, and the fields of the body that make it so."""

    label: str
    blamed: str
    fields: Mapping[str, Any] = field(hash=False)


MISTAKES = (
    Mistake("an unknown voice", "voice", {"voice": "ottilie"}),
    Mistake("a voice that is no text", "voice", {"voice": 7}),
    Mistake("an unknown format", "response_format", {"response_format": "wave64"}),
    Mistake("a speed of 100", "speed", {"speed": 100}),
    Mistake("a speed of 0", "speed", {"speed": 0}),
    Mistake("a speed in words", "speed", {"speed": "fast"}),
    Mistake("an empty text", "input", {"input": ""}),
    Mistake("a text of blanks", "input", {"input": "   "}),
    Mistake("a text that is no text", "input", {"input": ["Hello there."]}),
    Mistake("a seed in words", "seed", {"seed": "seven"}),
    Mistake("a seed that is no whole number", "seed", {"seed": 0.5}),
    Mistake("stream in words", "stream", {"stream": "maybe"}),
    Mistake("streamed WAV", "response_format", {"stream": True, "response_format": "wav"}),
    Mistake(
        "an unknown stream format",
        "stream_format",
        {"stream": True, "response_format": "pcm", "stream_format": "lines"},
    ),
)


@dataclass(frozen=True, slots=True)
class BadRequestsContract:
    """Hears how malformed calls are refused: with a status from 400 to 499, and naming the field to blame.

    Where the baseline does so, the candidate must: an answer, a failure (5xx) or no answer at all fails. ``too_long``
    is the number of characters of a text that is too long; 0 leaves that call out.
    """

    too_long: int
    name: str = "contract-bad_requests"

    @property
    def mistakes(self) -> Sequence[Mistake]:
        """The calls that are sent, each once."""
        return (*MISTAKES, Mistake("too long a text", "input", {})) if self.too_long else MISTAKES

    def probes(self, source: RequestSource, workloads: Sequence[Workload]) -> Sequence[SpeechRequest]:
        """Return a fresh request for each mistake, with the mistake in it."""
        drawn = draw_probes(source, workloads, len(self.mistakes))
        return [
            make_mistake(asked, f"{self.name}-{number}", mistake.fields or {"input": lengthen(asked, self.too_long)})
            for number, (asked, mistake) in enumerate(zip(drawn, self.mistakes, strict=True), start=1)
        ]

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare how both arms answer each call."""
        asked = [
            (mistake, pair)
            for number, mistake in enumerate(self.mistakes, start=1)
            if (pair := evidence.probes.get(f"{self.name}-{number}")) is not None
        ]
        if not asked:
            return nothing_heard(self.name, "no probe was sent")
        findings = [judge_refusal(mistake, pair) for mistake, pair in asked]
        mute = [mistake.label for (mistake, _), found in zip(asked, findings, strict=True) if found is None]
        if mute:
            return nothing_heard(self.name, f"the baseline neither answers nor refuses {mute[0]}")
        return result(self.name, [finding for finding in findings if finding is not None], len(asked))


def make_mistake(asked: SpeechRequest, name: str, fields: Mapping[str, Any]) -> SpeechRequest:
    """Return a request whose body has other values in some fields."""
    return replace(asked, id=name, extra=dict(asked.extra) | dict(fields))


def lengthen(asked: SpeechRequest, size: int) -> str:
    """Return a request's text over and over, ``size`` characters long."""
    return (asked.input + " ") * (size // (len(asked.input) + 1)) + asked.input[: size % (len(asked.input) + 1)]


def judge_refusal(mistake: Mistake, pair: ExchangePair) -> Finding | None:
    """Judge how a mistake is refused; ``None`` where the baseline neither answers it nor refuses it."""
    name, ours, theirs = pair.request.id, pair.baseline, pair.candidate
    if not is_refused(ours):
        answers = ours.error is None and ours.status is not None and ours.status < 500
        # A stream may promise 200 and refuse in its first event.
        return not_demanded(mistake.label, f"{mistake.label} is refused") if answers else None
    if theirs is None:
        return kept(mistake.label, f"{mistake.label} is refused with status {ours.status}")
    if not is_refused(theirs):
        return broken(
            mistake.label,
            name,
            f"{mistake.label} gets {described(theirs)}, from the baseline status {ours.status}",
        )
    named = named_fields(ours.body)
    blamed = named & {mistake.blamed} or named
    if blamed and not blamed & named_fields(theirs.body):
        return broken(
            mistake.label,
            name,
            f"{mistake.label} is refused without naming {' or '.join(sorted(blamed))}, as the baseline does",
        )
    return kept(mistake.label, f"{mistake.label} is refused as by the baseline")


def described(exchange: Exchange) -> str:
    """Return what came instead of a refusal, in some words."""
    if exchange.error is not None or exchange.status is None:
        return f"no answer ({exchange.error or 'no status'})"
    return f"status {exchange.status}" + (" and audio" if audio_of([exchange]) is not None else "")


def named_fields(body: bytes) -> frozenset[str]:
    """Return which fields of the request an error names.

    By its ``param`` (OpenAI) or the ends of its ``loc`` (FastAPI) where it has one, else by the words of its text.
    """
    try:
        said: object = json.loads(body[:100_000])
    except (ValueError, RecursionError):
        said = None
    structured = {name for name in _pointed_at(said) if name in FIELDS}
    if structured:
        return frozenset(structured)
    return frozenset(_WORD.findall(body[:10_000].decode(errors="replace").lower())) & frozenset(FIELDS)


def _pointed_at(said: object) -> list[str]:
    if not isinstance(said, dict):
        return []
    error, details = said.get("error"), said.get("detail")
    found = [said.get("param"), error.get("param") if isinstance(error, dict) else None]
    for detail in details if isinstance(details, list) else ():
        where = detail.get("loc") if isinstance(detail, dict) else None
        found += where if isinstance(where, list) else []
    return [name for name in found if isinstance(name, str)]


PROMISE = Family(
    marker="contract",
    signature='contract("bad_requests", too_long=5000)',
    build=BadRequestsContract,
    arguments={"too_long": Number(5000, 0, 1_000_000, whole=True)},
)
