"""A guard family: a marker, and how its arguments are read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import Guard
    from pytest_rsi.recording import SpeechRequest
    from pytest_rsi.task import Workload


class JudgesTimedRequests:
    """Base of guards that send nothing of their own."""

    __slots__ = ()

    def probes(self, source: RequestSource, workloads: Sequence[Workload]) -> Sequence[SpeechRequest]:
        """Return nothing."""
        return ()


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
class Name:
    """A keyword argument that is a name: of a judge model, say."""

    default: str

    def read(self, marker: str, name: str, value: object) -> str:
        """Return the value.

        Raises:
            ValueError: it is not a name.
        """
        if not isinstance(value, str) or not value:
            raise ValueError(f"{marker}: {name}={value!r}, expected a name such as {self.default!r}")
        return value


@dataclass(frozen=True, slots=True)
class Family:
    """A family whose marker takes arguments by keyword, and ``build`` the same keywords."""

    marker: str
    signature: str
    build: Callable[..., Guard]
    arguments: Mapping[str, Number | Name] = field(default_factory=dict)

    def make(self, *args: Any, **kwargs: Any) -> Guard:  # noqa: ANN401  (what a marker was given)
        """Return the guard.

        Raises:
            ValueError: an argument is unknown or not what is expected.
        """
        if args:
            raise ValueError(f"{self.marker}: argument {args[0]!r}, expected keywords only: {self.signature}")
        return self.build(**read_arguments(self.marker, self.arguments, kwargs))


def read_arguments(
    marker: str, arguments: Mapping[str, Number | Name], given: Mapping[str, object]
) -> dict[str, float | str | None]:
    """Return every argument by name: the given value, or the default.

    Raises:
        ValueError: a name is unknown, or a value is not what is expected.
    """
    for name, value in given.items():
        if name not in arguments:
            known = ", ".join(arguments) or "no arguments"
            raise ValueError(f"{marker}: unknown argument {name}={value!r}, expected {known}")
    return {
        name: argument.read(marker, name, given[name]) if name in given else argument.default
        for name, argument in arguments.items()
    }
