"""Ends: speech that is cut off, silence that was added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faults.answers import SoundFault

if TYPE_CHECKING:
    from faults.answers import Samples, Sound

LOUD = 0.02
"""Samples above a fiftieth of full scale are speech, for where to cut."""


def _cut(sound: Sound, size: float) -> Samples:
    return sound.samples[: max(1, len(sound.samples) - sound.count(size / 1000))]


def _cut_and_hide(sound: Sound, size: float) -> Samples:
    """Fade out before the end of speech, and leave silence of the same length behind."""
    loud = np.flatnonzero(np.abs(sound.samples) > LOUD * np.abs(sound.samples).max(initial=1e-9))
    stop, fade = int(loud[-1]) - sound.count(size / 1000), sound.count(0.005)
    harmed = sound.samples.copy()
    if stop > fade:
        harmed[stop - fade : stop] *= np.linspace(1, 0, fade, dtype=np.float32)
        harmed[stop:] = 0
    return harmed


def _silence_first(sound: Sound, size: float) -> Samples:
    return np.concatenate([np.zeros(sound.count(size / 1000), np.float32), sound.samples])


def _silence_last(sound: Sound, size: float) -> Samples:
    return np.concatenate([sound.samples, np.zeros(sound.count(size / 1000), np.float32)])


FAULTS = (
    SoundFault("tail-cut", "ms", (50, 100, 200, 400), "the last sound is missing", _cut),
    SoundFault(
        "tail-hidden-cut", "ms", (50, 100, 150, 300), "the last sound is missing, length as before", _cut_and_hide
    ),
    SoundFault("lead-silence", "ms", (10, 20, 80, 200), "speech begins later", _silence_first),
    SoundFault("trail-silence", "ms", (20, 80, 200, 1000), "silence after speech", _silence_last),
)
