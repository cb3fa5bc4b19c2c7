"""``mos``: what listeners would say of the sound, as a network predicts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guards.family import Family, JudgesTimedRequests, Name, Number
from guards.heard import draw, heard
from guards.memory import once
from guards.models import load
from guards.noninferiority import Comparison, Unit, absolute, nothing_heard, result
from guards.voice_models import require_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guards.heard import HeardPair
    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import Evidence, Finding, GuardResult

MOS = Unit("MOS", "", digits=2)
MARGINS = {"distillmos": 0.12, "plcmos": 0.06, "dnsmos": 0.08}
REQUESTS = {"distillmos": 24, "plcmos": 48, "dnsmos": 16}
"""One answer of two honest runs differs by 0.16, 0.09 and 0.08 (standard deviation): so many, from two workloads, tell
an honest candidate from one at the margin."""


@dataclass(frozen=True, slots=True)
class MosGuard(JudgesTimedRequests):
    """Hears noise, clicks, holes and what vocoders do. Unit: opinion score from 1 to 5 (ITU-T P.800).

    Every score that ``model`` gives is an equivalence test (two one-sided tests on paired differences) with the margin
    ``worse_by``: a rise beyond it is a flag too, since a sound that another process has polished may score higher.
    ``min`` is the least the mean score may be, for the first score that the model gives. At most ``requests`` of each
    workload are heard.

    The networks are deaf to speaker, words, rate and the band above 8 kHz.
    """

    min: float | None
    worse_by: float
    requests: int
    model: str

    @property
    def name(self) -> str:
        """The name of its test item, with the model's: several may be stacked."""
        return f"mos-{self.model}"

    def check(self, evidence: Evidence) -> GuardResult:
        """Score a draw of the answers and compare.

        Raises:
            JudgeModelError: the model is unknown or not installed.
        """
        pairs = draw(heard(evidence), self.requests, evidence.seed)
        if not pairs:
            return nothing_heard(self.name)
        before = [predict(pair.baseline, self.model) for pair in pairs]
        after = [predict(pair.theirs, self.model) for pair in pairs]
        names = [name for name in before[0] if all(name in scores for scores in (*before, *after))]
        if not names:
            return nothing_heard(self.name, f"no score that {self.model!r} gave every answer")
        findings = []
        if self.min is not None or all(pair.candidate is None for pair in pairs):
            mean = float(np.mean([scores[names[0]] for scores in after]))
            findings.append(absolute(f"mean {names[0]}", MOS, mean, self.min, "higher"))
        if any(pair.candidate is not None for pair in pairs):
            findings += [self._compare(name, pairs, before, after, evidence.seed) for name in names]
        return result(self.name, findings, len(pairs))

    def _compare(
        self,
        name: str,
        pairs: Sequence[HeardPair],
        before: Sequence[Mapping[str, float]],
        after: Sequence[Mapping[str, float]],
        seed: int,
    ) -> Finding:
        old, new = np.array([scores[name] for scores in before]), np.array([scores[name] for scores in after])
        return Comparison(
            label=name,
            unit=MOS,
            baseline=float(old.mean()),
            candidate=float(new.mean()),
            differences=new - old,
            ids=[pair.request.id for pair in pairs],
            margin=self.worse_by,
            better="same",
        ).finding(seed)


@once
def predict(audio: Audio, model: str) -> dict[str, float]:
    """Return the scores that a model predicts, by name; equal audio is scored once."""
    return dict(load("mos", model)(audio))


def _build(*, worse_by: float | None, requests: int | None, model: str, min: float | None) -> MosGuard:
    margin = MARGINS.get(model) if worse_by is None else worse_by
    if margin is None:
        raise ValueError(f"mos: worse_by=None, expected a number: model {model!r} has no margin of its own")
    require_model("mos", model)
    return MosGuard(worse_by=margin, requests=requests or REQUESTS.get(model, 24), model=model, min=min)


FAMILY = Family(
    marker="mos",
    signature=(
        "mos(model='distillmos', min=None, worse_by=None, requests=None): opinion score predicted by distillmos, "
        "plcmos, dnsmos or a plugin's model stays as it is, in both directions; by default worse_by is 0.12, "
        "0.06 or 0.08, of 24, 48 or 16 requests of each workload"
    ),
    build=_build,
    arguments={
        "model": Name("distillmos"),
        "min": Number(None, 1, 5),
        "worse_by": Number(None, 0, 4),
        "requests": Number(None, 1, 10_000, whole=True),
    },
)
