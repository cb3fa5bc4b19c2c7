"""Samples to bytes."""

import io
import struct

import numpy as np
import soundfile

from tinytts.config import SAMPLE_RATE


def pcm(samples):
    """Return 16-bit little-endian PCM of samples in -1..1."""
    return b"".join(struct.pack("<h", max(-32768, min(32767, round(value * 32767)))) for value in samples)


def file_bytes(data, file_format):
    """Return a WAV or FLAC file of 16-bit PCM."""
    file = io.BytesIO()
    soundfile.write(file, np.frombuffer(data, "<i2"), SAMPLE_RATE, format=file_format.upper(), subtype="PCM_16")
    return file.getvalue()
