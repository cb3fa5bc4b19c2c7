"""``contract``: what the interface promises, asked of both arms by probes. One module a promise.

Only what the baseline keeps is demanded; what the candidate loses of that fails. Where the baseline itself does not
answer, nothing can be told. Probes are drawn from where timed requests come from, and have their shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from guards.contract import formats, likeness, refusals, seed, speed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_rsi.guard import Guard

PROMISES: Mapping[str, Callable[..., Guard]] = {
    "seed": seed.PROMISE.make,
    "speed": speed.PROMISE.make,
    "formats": formats.PROMISE.make,
    "voices": likeness.make_voices,
    "language": likeness.make_language,
    "bad_requests": refusals.PROMISE.make,
}


@dataclass(frozen=True, slots=True)
class ContractFamily:
    """The marker ``contract``: which promise by position, its arguments by keyword."""

    marker: str = "contract"
    signature: str = (
        'contract(promise, ...): what the baseline keeps of "seed" (texts=2), "speed" (texts=4, worse_by=0.06), '
        '"formats" (texts=1), "voices" (voices=("default",), texts=2, worse_by=0.1, longer=0.1), '
        '"language" (texts={"en": ()}, worse_by=0.1, longer=0.1), "bad_requests" (too_long=5000)'
    )

    def make(self, *args: Any, **kwargs: Any) -> Guard:  # noqa: ANN401  (what a marker was given)
        """Return the guard.

        Raises:
            ValueError: an argument is unknown or not what is expected.
        """
        if len(args) != 1 or args[0] not in list(PROMISES):
            shown = ", ".join(map(repr, args)) or "nothing"
            raise ValueError(f"contract: promise {shown}, expected one of {', '.join(map(repr, PROMISES))}")
        return PROMISES[args[0]](**kwargs)


FAMILY = ContractFamily()
