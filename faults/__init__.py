"""Faults: harm of graded size for the audit of guards; one module a kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rsi.fault import Fault


def pytest_rsi_faults() -> Sequence[Fault]:
    """Return all faults of this folder."""
    from faults import ends, mixups, seams, sound, timing, voice, words

    return [fault for module in (ends, words, voice, seams, sound, mixups, timing) for fault in module.FAULTS]
