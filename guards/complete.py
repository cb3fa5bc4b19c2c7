"""``complete``: answers that failed, are empty, silent or cut off."""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guards.family import Family, JudgesTimedRequests, Number
from guards.heard import hear
from guards.noninferiority import SHARE, nothing_heard
from pytest_rsi.audio import UndecodableAudioError
from pytest_rsi.guard import GuardResult
from pytest_rsi.metrics import Failure, measure

if TYPE_CHECKING:
    from pytest_rsi.guard import Evidence
    from pytest_rsi.recording import Exchange

_UNKNOWN_SIZES = (0, 0xFFFFFFFF, 0x7FFFFFFF)
"""What a server writes as the size of a WAV file that it does not know the end of yet."""


@dataclass(frozen=True, slots=True)
class CompleteGuard(JudgesTimedRequests):
    """Hears no audio: counts answers that are not a whole one, by kind. Unit: share of requests.

    Kinds: no answer, status, undecodable, silent (never 40 ms above -50 dBFS), cut off (``finish_reason`` is
    ``length``, or a file shorter than its header says). The candidate may have no more of any kind than the baseline,
    and of all together at most the share ``max``. Timed requests and the guards' own count alike.
    """

    max: float
    name: str = "complete"

    def check(self, evidence: Evidence) -> GuardResult:
        """Count failures of both arms."""
        pairs = [*evidence.pairs, *evidence.probes.values()]
        if not pairs:
            return nothing_heard(self.name, "no request was sent")
        before = {pair.request.id: shortcoming(pair.baseline) for pair in pairs}
        after = {pair.request.id: shortcoming(pair.candidate) for pair in pairs if pair.candidate is not None}
        judged = after or before
        old, new = _by_kind(before), _by_kind(judged)
        share, share_before = new.total() / len(pairs), old.total() / len(pairs)
        more = {kind: count for kind, count in new.items() if count > old[kind]} if after else {}
        within = share <= self.max
        newly = [name for name, found in judged.items() if found and not (after and before[name])]
        text = f"{new.total()} of {len(pairs)} answers failed" + (f" ({_listed(new)})" if new else "")
        text += f" vs {old.total()} of the baseline's" if after else ""
        text += f", {'limit' if within else 'over the limit of'} {SHARE.value(self.max)}"
        if more:
            text += f"; more than the baseline: {_listed(more)}"
        if newly and (more or not within):
            text += f"; {newly[0]}: {judged[newly[0]]}"
        return GuardResult(
            guard=self.name,
            outcome="failed" if more or not within else "passed",
            reason=text,
            value=share,
            baseline=share_before,
            limit=self.max,
            unit="1",
            requests=len(pairs),
            worst=tuple((name, 1.0) for name in newly[:5]),
        )


def shortcoming(exchange: Exchange) -> str | None:
    """Return what an answer lacks, ``KIND: detail`` in one line, or ``None`` if it is a whole one."""
    found = measure(exchange)
    if isinstance(found, Failure):
        return f"{found.kind}: {found.detail}"
    try:
        hear(exchange)
    except UndecodableAudioError as error:
        return f"undecodable: {error}"
    if found.ttfa_s == float("inf"):
        return "silent: never 40 ms above -50 dBFS"
    if _finish_reason(exchange) == "length":
        return "cut off: finish_reason is length"
    missing = _missing_bytes(exchange)
    return f"cut off: the file lacks {missing} bytes of what its header says" if missing > 0 else None


def _by_kind(found: dict[str, str | None]) -> Counter[str]:
    return Counter(text.partition(":")[0] for text in found.values() if text)


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))


def _finish_reason(exchange: Exchange) -> str:
    """Return what the server says ended the answer, from its header or its last event, or an empty string."""
    headers = {name.lower(): value for name, value in exchange.headers.items()}
    reason = headers.get("x-finish-reason", "")
    if not (exchange.request.stream and exchange.request.stream_format == "sse"):
        return reason.strip().lower()
    for line in exchange.body.splitlines():
        if b"finish_reason" not in line:
            continue
        try:
            event = json.loads(line.removeprefix(b"data:"))
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("finish_reason") is not None:
            reason = str(event["finish_reason"])
    return reason.strip().lower()


def _missing_bytes(exchange: Exchange) -> int:
    """Return how many bytes of samples a WAV file lacks; 0 for other formats, whose decoders notice by themselves."""
    body = exchange.body
    if body[:4] != b"RIFF" or body[8:12] != b"WAVE":
        return 0
    at = 12
    while at + 8 <= len(body):
        size = struct.unpack_from("<I", body, at + 4)[0]
        if body[at : at + 4] == b"data":
            return 0 if size in _UNKNOWN_SIZES else int(at + 8 + size - len(body))
        at += 8 + size + size % 2
    return 0


FAMILY = Family(
    marker="complete",
    signature="complete(max=0.0): answers that failed, are empty, silent or cut off; max is the share allowed",
    build=CompleteGuard,
    arguments={"max": Number(0.0, 0, 1)},
)
