"""Guards: one module a family; each registers its marker and its check."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from pytest_rsi.guard import GuardFamily


def pytest_configure(config: pytest.Config) -> None:
    """Let guards find the judge models of this run's plugins."""
    from guards import models

    models.use_hooks(config.hook)


def pytest_rsi_guards() -> Sequence[GuardFamily]:
    """Return all families of this folder."""
    from guards import (
        band,
        cer,
        complete,
        contract,
        duration,
        latency,
        level,
        mos,
        parity,
        repetition,
        seams,
        soak,
        speaker,
        streamed,
        tail,
        wer,
    )

    words_and_times = (complete, wer, cer, repetition, tail, duration, latency, soak)
    sound = (parity, speaker, mos, seams, streamed, band, level)
    return [module.FAMILY for module in (*words_and_times, *sound, contract)]
