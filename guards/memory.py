"""What was listened to once need not be listened to again."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pytest_rsi.audio import Audio

if TYPE_CHECKING:
    from collections.abc import Callable

Given = ParamSpec("Given")
Heard = TypeVar("Heard")

MOST = 20_000
"""Results kept of each function, the oldest forgotten first: figures and transcripts, no audio."""


def once(listen: Callable[Given, Heard]) -> Callable[Given, Heard]:
    """Let a function of audio run once for equal audio (by SHA-256 of rate and samples) and equal other arguments."""
    kept: dict[tuple[object, ...], Heard] = {}

    @functools.wraps(listen)
    def remembering(*args: Given.args, **kwargs: Given.kwargs) -> Heard:
        given = (*args, *sorted(kwargs.items()))
        key = tuple(value.digest() if isinstance(value, Audio) else value for value in given)
        if key not in kept:
            while len(kept) >= MOST:
                del kept[next(iter(kept))]
            kept[key] = listen(*args, **kwargs)
        return kept[key]

    return remembering
