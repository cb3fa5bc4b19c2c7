"""Words: a piece of speech dropped, repeated or moved. Pieces begin and end where speech is quietest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from faults.answers import SoundFault

if TYPE_CHECKING:
    from faults.answers import Samples, Sound

FRAME_S = 0.010
SEARCH_S = 0.06
FADE_S = 0.005


def _piece(sound: Sound, seconds: float, at: float) -> tuple[int, int]:
    """Return (first sample, end) of a piece of about that length that begins about that share into the answer."""
    length = len(sound.samples)
    first = _quietest(sound, round(at * length))
    return first, _quietest(sound, min(length - 1, first + sound.count(seconds)))


def _quietest(sound: Sound, near: int) -> int:
    """Return where the energy of 10 ms is least, within 60 ms."""
    frame, reach = sound.count(FRAME_S), sound.count(SEARCH_S)
    low = max(0, near - reach)
    energy = np.convolve(sound.samples[low : near + reach].astype(np.float64) ** 2, np.ones(frame), mode="valid")
    return low + int(np.argmin(energy)) + frame // 2 if len(energy) else near


def _joined(sound: Sound, *parts: Samples) -> Samples:
    """Join parts with short fades, so that the joint itself is not what is heard."""
    fade = sound.count(FADE_S)
    faded = []
    for number, part in enumerate(parts):
        piece = part.copy()
        ramp = np.linspace(0, 1, min(fade, len(piece)), dtype=np.float32)
        if number:
            piece[: len(ramp)] *= ramp
        if number < len(parts) - 1:
            piece[len(piece) - len(ramp) :] *= ramp[::-1]
        faded.append(piece)
    return np.concatenate(faded)


def _drop(sound: Sound, size: float) -> Samples:
    first, end = _piece(sound, size / 1000, 0.4)
    return _joined(sound, sound.samples[:first], sound.samples[end:])


def _repeat(sound: Sound, size: float) -> Samples:
    first, end = _piece(sound, size / 1000, 0.4)
    return _joined(sound, sound.samples[:end], sound.samples[first:end], sound.samples[end:])


def _swap(sound: Sound, size: float) -> Samples:
    first, middle = _piece(sound, size / 1000, 0.3)
    end = _quietest(sound, min(len(sound.samples) - 1, 2 * middle - first))
    samples = sound.samples
    return _joined(sound, samples[:first], samples[middle:end], samples[first:middle], samples[end:])


FAULTS = (
    SoundFault("word-dropped", "ms", (80, 160, 250, 400), "a sound, a syllable, a word is missing", _drop),
    SoundFault("word-repeated", "ms", (80, 160, 250, 400), "a sound, a syllable, a word comes twice", _repeat),
    SoundFault("words-swapped", "ms", (80, 160, 250, 400), "two neighbours change places", _swap),
)
