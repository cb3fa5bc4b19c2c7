"""Where in an utterance there is speech: energy-based voice activity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_rsi.metrics import FRAME_S, frame_levels_dbfs

if TYPE_CHECKING:
    from pytest_rsi.audio import Audio

BELOW_TOP_DB = 35.0
"""Speech is within this of the utterance's loud parts (95th percentile of frame levels)."""
LEAST_TOP_DBFS = -55.0
"""An utterance whose loud parts are below this is silence."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Speech in an utterance, in seconds on its own time axis, in steps of 10 ms.

    ``total_s`` is the length of the audio; ``start_s`` and ``end_s`` bound the speech; ``pause_s`` is the longest
    silence inside; ``spoken_s`` the time with speech. Silence has ``spoken_s`` 0 and starts where it ends.
    """

    total_s: float
    start_s: float
    end_s: float
    pause_s: float
    spoken_s: float

    @property
    def lead_s(self) -> float:
        """Silence before the speech."""
        return self.start_s

    @property
    def trail_s(self) -> float:
        """Silence after the speech."""
        return max(0.0, self.total_s - self.end_s)


def activity(audio: Audio) -> Activity:
    """Return where the speech is."""
    levels = frame_levels_dbfs(audio)
    top = float(np.quantile(levels, 0.95)) if len(levels) else -np.inf
    if top < LEAST_TOP_DBFS:
        return Activity(audio.duration_s, 0.0, 0.0, 0.0, 0.0)
    active = np.flatnonzero(levels > top - BELOW_TOP_DB)
    gaps = np.diff(active) - 1
    return Activity(
        total_s=audio.duration_s,
        start_s=float(active[0]) * FRAME_S,
        end_s=float(active[-1] + 1) * FRAME_S,
        pause_s=float(gaps.max()) * FRAME_S if len(gaps) else 0.0,
        spoken_s=len(active) * FRAME_S,
    )
