"""``contract("voices")`` and ``contract("language")``: a voice or language that is gone, or another one now."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from guards.contract.refusals import Mistake, judge_refusal, make_mistake
from guards.contract.trial import (
    audio_of,
    broken,
    draw_probes,
    is_refused,
    kept,
    not_demanded,
    other_seed,
    same_audio,
    trials,
    unanswered,
)
from guards.family import Number, read_arguments
from guards.noninferiority import nothing_heard, result
from guards.parity import mel_distance
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guards.contract.trial import Trial
    from pytest_rsi.audio import Audio
    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import Evidence, GuardResult
    from pytest_rsi.recording import SpeechRequest
    from pytest_rsi.task import Workload

MARGINS = {"worse_by": Number(0.1, 0, 10), "longer": Number(0.1, 0, 1)}


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to ask: what to call it, the fields of the body that make it so, and a text of its own if it needs one."""

    label: str
    fields: Mapping[str, Any] = field(hash=False)
    text: str | None = None

    def ask(self, request: SpeechRequest) -> SpeechRequest:
        """Return a request asked this way."""
        fields = dict(self.fields)
        voice = fields.pop("voice", request.voice)
        extra = dict(request.extra) | fields
        return replace(request, voice=voice, extra=extra, input=request.input if self.text is None else self.text)


@dataclass(frozen=True, slots=True)
class LikenessContract:
    """Hears whether each voice, or language, still sounds as the baseline's: every text with two seeds.

    Where the task declares equal samples for an equal seed, both arms' answers are the same but for rounding.
    Elsewhere the log-mel distance after warping between the arms' answers with unlike seeds may be ``worse_by`` above
    that between the baseline's own two, and the mean log-ratio of lengths at most ``longer`` either way. An unknown one
    is refused if the baseline refuses it.
    """

    name: str
    variants: Sequence[Variant]
    unknown: Mistake
    worse_by: float
    longer: float

    def probes(self, source: RequestSource, workloads: Sequence[Workload]) -> Sequence[SpeechRequest]:
        """Return two requests for each variant, ``1a`` and ``1b`` with another seed, and one for an unknown one."""
        *drawn, last = draw_probes(source, workloads, len(self.variants) + 1)
        probes = [
            replace(variant.ask(asked), id=f"{self.name}-{number}{letter}", seed=seed)
            for number, (asked, variant) in enumerate(zip(drawn, self.variants, strict=True), start=1)
            for letter, seed in zip("ab", (asked.seed, other_seed(asked.seed or 0)), strict=True)
        ]
        return [*probes, make_mistake(last, f"{self.name}-unknown", self.unknown.fields)]

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare both arms, one voice or language after the other."""
        found: dict[str, list[Trial]] = {}
        for number, variant in enumerate(self.variants, start=1):
            found.setdefault(variant.label, []).extend(trials(evidence, [f"{self.name}-{number}"], "ab"))
        asked = {label: those for label, those in found.items() if those}
        if not asked:
            return nothing_heard(self.name, "no probe was sent")
        findings: list[Finding] = []
        for label, those in asked.items():
            judged = self._judge(label, those, evidence.deterministic)
            if judged is None:
                return nothing_heard(self.name, f"the baseline did not answer every probe ({label})")
            findings += judged
        pair = evidence.probes.get(f"{self.name}-unknown")
        if pair is not None:
            refusal = judge_refusal(self.unknown, pair)
            if refusal is None:
                return nothing_heard(self.name, f"the baseline neither answers nor refuses {self.unknown.label}")
            findings.append(refusal)
        return result(self.name, findings, 2 * sum(len(those) for those in asked.values()))

    def _judge(self, label: str, asked: Sequence[Trial], deterministic: bool) -> list[Finding] | None:
        """Judge one voice or language; ``None`` where the baseline does not answer it."""
        if all(is_refused(exchange) for trial in asked for exchange in trial.baseline):
            return [not_demanded(label, f"{label} is answered")]
        heard: list[tuple[Trial, list[Audio], list[Audio]]] = []
        for trial in asked:
            ours = audio_of(trial.baseline)
            if ours is None:
                return None
            theirs = audio_of(trial.candidate)
            if theirs is None:
                return [unanswered(label, trial.name)]
            if theirs:
                heard.append((trial, ours, theirs))
        if not heard:
            return [kept(label, f"{label} is answered")]
        if deterministic:
            return [_samples(label, heard)]
        return [self._lengths(label, heard), self._spectra(label, heard)]

    def _lengths(self, label: str, heard: Sequence[tuple[Trial, list[Audio], list[Audio]]]) -> Finding:
        ratios = [math.log(new.duration_s / old.duration_s) for _, o, t in heard for old, new in zip(o, t, strict=True)]
        mean = float(np.mean(ratios))
        return Finding(
            outcome="passed" if abs(mean) <= self.longer else "failed",
            text=f"{label}: {math.exp(mean):.2f} times as long as the baseline's, "
            f"margin +-{100 * math.expm1(self.longer):.0f} %",
            value=math.exp(mean),
            baseline=1.0,
            margin=math.expm1(self.longer),
            unit="1",
            label=f"{label}, length",
            better="same",
        )

    def _spectra(self, label: str, heard: Sequence[tuple[Trial, list[Audio], list[Audio]]]) -> Finding:
        # Unlike seeds on both sides: with the same seed an honest arm would be nearer than the baseline is to itself.
        own = float(np.mean([mel_distance(ours[0], ours[1]) for _, ours, _ in heard]))
        apart = float(np.mean([mel_distance(o[first], t[1 - first]) for _, o, t in heard for first in (0, 1)]))
        return Finding(
            outcome="passed" if apart - own <= self.worse_by else "failed",
            text=f"{label}: mel distance to the baseline {apart:.3f}, of the baseline to itself {own:.3f}, "
            f"margin +{self.worse_by:.3f}",
            value=apart,
            baseline=own,
            margin=self.worse_by,
            unit="1",
            label=f"{label}, sound",
        )


def _samples(label: str, heard: Sequence[tuple[Trial, list[Audio], list[Audio]]]) -> Finding:
    for trial, ours, theirs in heard:
        if not all(same_audio(old, new) for old, new in zip(ours, theirs, strict=True)):
            return broken(label, trial.name, f"{label} is other audio than the baseline's of the same seed")
    return kept(label, f"{label} is the baseline's audio")


def make_voices(voices: object = ("default",), **given: Any) -> LikenessContract:  # noqa: ANN401  (a marker's)
    """Return the guard of voices by name, ``texts`` of each.

    Raises:
        ValueError: an argument is unknown or not what is expected.
    """
    names = [voices] if isinstance(voices, str) else voices
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"contract: voices={voices!r}, expected names such as ('default', 'joe')")
    values: dict[str, Any] = read_arguments("contract", MARGINS | {"texts": Number(2, 1, 20, whole=True)}, given)
    texts = values.pop("texts")
    return LikenessContract(
        name="contract-voices",
        variants=[Variant(f"voice {name}", {"voice": name}) for name in names for _ in range(texts)],
        unknown=Mistake("an unknown voice", "voice", {"voice": "ottilie"}),
        **values,
    )


def make_language(texts: object = None, **given: Any) -> LikenessContract:  # noqa: ANN401  (a marker's)
    """Return the guard of languages: ``texts`` has a list of texts by tag; an empty one asks for the source's own.

    Raises:
        ValueError: an argument is unknown or not what is expected.
    """
    by_tag = {"en": ()} if texts is None else texts
    if not isinstance(by_tag, dict) or not by_tag or not all(map(_is_language, by_tag.items())):
        raise ValueError(f"contract: texts={texts!r}, expected texts by language such as {{'en': (), 'de': ('Ja.',)}}")
    values: dict[str, Any] = read_arguments("contract", MARGINS, given)
    return LikenessContract(
        name="contract-language",
        variants=[
            Variant(f"language {tag}", {"language": tag}, text)
            for tag, own in by_tag.items()
            for text in own or (None,)
        ],
        unknown=Mistake("an unknown language", "language", {"language": "qx"}),
        **values,
    )


def _is_language(item: tuple[object, object]) -> bool:
    tag, own = item
    listed = isinstance(own, list | tuple) and all(isinstance(text, str) and text.strip() for text in own)
    return isinstance(tag, str) and bool(tag) and listed
