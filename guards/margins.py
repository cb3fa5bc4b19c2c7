"""How every guard decides: a difference from the baseline must be shown to be small, not merely not shown to be large."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_rsi.stats import Interval, bootstrap_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_rsi.guard import Outcome

CONFIDENCE = 0.95
WORST = 5


def non_inferior(interval: Interval, margin: float) -> Outcome:
    """Return ``passed`` if the interval of (candidate - baseline), more being worse, stays under the margin.

    ``failed`` if all of it lies above, ``undecided`` if it straddles the margin or says nothing.
    """
    if interval.high < margin or interval.high <= 0:
        return "passed"
    return "failed" if interval.low > margin else "undecided"


def equivalent(interval: Interval, margin: float) -> Outcome:
    """Return ``passed`` if the interval stays inside +-margin (two one-sided tests), ``failed`` if it lies outside."""
    if interval.low > -margin and interval.high < margin:
        return "passed"
    return "failed" if interval.low > margin or interval.high < -margin else "undecided"


def worst_of(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst of some outcomes; ``passed`` if there is none."""
    seen = set(outcomes)
    return "failed" if "failed" in seen else "undecided" if "undecided" in seen else "passed"


def mean_interval(differences: Sequence[float], seed: int) -> Interval:
    """Return the 95 % bootstrap interval of the mean of paired differences over requests."""
    return bootstrap_interval(differences, seed=seed, confidence=CONFIDENCE)


def requests_needed(interval: Interval, margin: float, requests: int) -> int:
    """Return about how many requests it takes for an interval centred on zero to fit inside the margin."""
    half = (interval.high - interval.low) / 2
    if not math.isfinite(half) or margin <= 0:
        return 2 * max(2, requests)
    return max(requests + 1, math.ceil(requests * (half / margin) ** 2))


def between(interval: Interval, scale: float = 1.0, unit: str = "") -> str:
    """Return an interval as text."""
    return f"{interval.low * scale:+.3g}..{interval.high * scale:+.3g}{unit}"


def number(name: str, value: object, low: float, high: float) -> float:
    """Return a marker's numeric argument.

    Raises:
        ValueError: it is no number from ``low`` to ``high``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{name}={value!r}, expected a number from {low:g} to {high:g}")
    return float(value)


def whole(name: str, value: object, low: int, high: int) -> int:
    """Return a marker's whole-number argument.

    Raises:
        ValueError: it is no whole number from ``low`` to ``high``.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{name}={value!r}, expected a whole number from {low} to {high}")
    return value


def only(kwargs: dict[str, object], *known: str) -> None:
    """Raise ``ValueError`` if a marker was given an argument that its family does not know."""
    for name, value in kwargs.items():
        if name not in known:
            raise ValueError(f"{name}={value!r} is no argument; expected {', '.join(known) or 'none'}")
