"""Seams: faults at the boundaries of chunks, and one gap or repeat inside. Streamed answers only have boundaries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faults.answers import SoundFault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from faults.answers import Samples, Sound

BURST = 0.1
CROSS_FADE_S = 0.005


def _at_seams(sound: Sound, size: float) -> list[NDArray[np.int64]]:
    """Return the samples of the ``size`` ms after each seam."""
    length = max(1, sound.count(size / 1000))
    return [np.arange(seam, min(seam + length, len(sound.samples))) for seam in sound.seams]


def _zeros(sound: Sound, size: float) -> Samples:
    harmed = sound.samples.copy()
    for where in _at_seams(sound, size):
        harmed[where] = 0
    return harmed


def _bursts(sound: Sound, size: float) -> Samples:
    harmed = sound.samples.copy()
    for where in _at_seams(sound, size):
        harmed[where] = sound.rng.normal(0, BURST, len(where))
    return harmed


def _dropped(sound: Sound, size: float) -> Samples:
    gone = _at_seams(sound, size)
    return np.delete(sound.samples, np.concatenate(gone)) if gone else sound.samples


def _dropped_smoothly(sound: Sound, size: float) -> Samples:
    """Drop what follows each seam and fade across the joint."""
    length, fade = sound.count(size / 1000), sound.count(CROSS_FADE_S)
    ramp = np.linspace(0, 1, fade, dtype=np.float32)
    parts, start = [], 0
    for seam in sound.seams:
        if seam - fade <= start or seam + length > len(sound.samples):
            continue
        parts.append(sound.samples[start : seam - fade])
        parts.append(
            sound.samples[seam - fade : seam] * (1 - ramp) + sound.samples[seam + length - fade : seam + length] * ramp
        )
        start = seam + length
    return np.concatenate([*parts, sound.samples[start:]])


def _impulses(sound: Sound, size: float) -> Samples:
    harmed = sound.samples.copy()
    harmed[sound.seams] += size
    return harmed


def _gap(sound: Sound, size: float) -> Samples:
    middle = len(sound.samples) // 2
    silence = np.zeros(sound.count(size / 1000), np.float32)
    return np.concatenate([sound.samples[:middle], silence, sound.samples[middle:]])


def _repeat(sound: Sound, size: float) -> Samples:
    middle = len(sound.samples) // 2
    return np.concatenate([sound.samples[:middle], sound.samples[middle - sound.count(size / 1000) :]])


def _loss(sound: Sound, size: float) -> Samples:
    middle = len(sound.samples) // 2
    return np.concatenate([sound.samples[:middle], sound.samples[middle + sound.count(size / 1000) :]])


FAULTS = (
    SoundFault("seam-zeros", "ms", (1, 2, 5, 20), "ticks or drop-outs at chunk boundaries", _zeros, streamed=True),
    SoundFault("seam-noise", "ms", (1, 2, 5), "bursts at chunk boundaries", _bursts, streamed=True),
    SoundFault("seam-dropped", "ms", (1, 2, 5, 23), "hard cuts at chunk boundaries", _dropped, streamed=True),
    SoundFault(
        "seam-crossfaded", "ms", (10, 23, 46), "speech lost smoothly at boundaries", _dropped_smoothly, streamed=True
    ),
    SoundFault("seam-impulse", "full scale", (0.03, 0.1, 0.3), "clicks at chunk boundaries", _impulses, streamed=True),
    SoundFault("gap", "ms", (10, 20, 40, 80), "silence inside speech", _gap),
    SoundFault("repeat", "ms", (10, 20, 40, 80), "a stutter", _repeat),
    SoundFault("loss", "ms", (10, 20, 40, 80), "a hole, closed up", _loss),
)
