"""A guard family: a marker, and how its arguments are read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_rsi.guard import Guard


@dataclass(frozen=True, slots=True)
class Number:
    """A keyword argument that is a number from ``low`` to ``high``; ``None`` is taken where the default is ``None``."""

    default: float | None
    low: float = 0.0
    high: float = math.inf
    whole: bool = False

    @property
    def expected(self) -> str:
        """What is expected, in words."""
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} from {self.low:g}" + ("" if math.isinf(self.high) else f" to {self.high:g}")

    def read(self, marker: str, name: str, value: object) -> float | None:
        """Return the value.

        Raises:
            ValueError: it is not the number expected.
        """
        if value is None and self.default is None:
            return None
        right = isinstance(value, int) if self.whole else isinstance(value, int | float)
        if isinstance(value, bool) or not right or not self.low <= float(value) <= self.high:  # type: ignore[arg-type]
            raise ValueError(f"{marker}: {name}={value!r}, expected {self.expected}")
        return value  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Family:
    """A family whose marker takes numbers by keyword, and ``build`` the same keywords."""

    marker: str
    signature: str
    build: Callable[..., Guard]
    numbers: Mapping[str, Number] = field(default_factory=dict)

    def make(self, *args: Any, **kwargs: Any) -> Guard:  # noqa: ANN401  (what a marker was given)
        """Return the guard.

        Raises:
            ValueError: an argument is unknown or not what is expected.
        """
        if args:
            raise ValueError(f"{self.marker}: argument {args[0]!r}, expected keywords only: {self.signature}")
        return self.build(**read_numbers(self.marker, self.numbers, kwargs))


def read_numbers(marker: str, numbers: Mapping[str, Number], given: Mapping[str, object]) -> dict[str, float | None]:
    """Return every number by name: the given value, or the default.

    Raises:
        ValueError: a name is unknown, or a value is not what is expected.
    """
    for name, value in given.items():
        if name not in numbers:
            known = ", ".join(numbers) or "no arguments"
            raise ValueError(f"{marker}: unknown argument {name}={value!r}, expected {known}")
    return {
        name: number.read(marker, name, given[name]) if name in given else number.default
        for name, number in numbers.items()
    }
