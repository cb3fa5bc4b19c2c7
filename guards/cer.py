"""``cer``: wrong, missing and invented characters, for languages that are written without spaces between words."""

from __future__ import annotations

from typing import Any

from guards.family import Family
from guards.judge_asr import require_judge
from guards.wer import ErrorRateGuard, arguments

MULTILINGUAL = "whisper-base"


def _build(**values: Any) -> ErrorRateGuard:  # noqa: ANN401  (checked numbers)
    require_judge(values["model"])
    return ErrorRateGuard(**values, name="cer")


FAMILY = Family(
    marker="cer",
    signature=(
        'cer(max=None, worse_by=0.02, requests=24, runaways=0, model="whisper-base"): character error rate of a '
        "judge's transcripts, for Chinese, Japanese, Korean, Thai; absolute limit and margin as shares of characters"
    ),
    build=_build,
    arguments=arguments(MULTILINGUAL),
)
