"""What a fault is: harm of a chosen size, done to real answers, that some guard must notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rsi.recording import Exchange


class Fault(Protocol):
    """One kind of harm that can be done to answers."""

    @property
    def name(self) -> str:
        """Its name on the command line and in ``[audit]``: ``tail-cut``."""

    @property
    def unit(self) -> str:
        """The unit of its sizes, as shown: ``ms``."""

    @property
    def sizes(self) -> Sequence[float]:
        """The sizes that an audit tries, from the least harm to the most."""

    @property
    def hears(self) -> str:
        """What a listener or client would notice, in a few words."""

    def inject(self, exchanges: Sequence[Exchange], size: float, seed: int) -> list[Exchange]:
        """Return the same answers with the fault in them; equal arguments give equal answers."""
