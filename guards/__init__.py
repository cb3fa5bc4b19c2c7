"""Guards: one module a family; each registers its marker and its check."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rsi.guard import GuardFamily


def pytest_rsi_guards() -> Sequence[GuardFamily]:
    """Return all families of this folder."""
    from guards import complete, contract, duration, latency, parity, tail, wer

    return [module.FAMILY for module in (complete, contract, duration, latency, parity, tail, wer)]
