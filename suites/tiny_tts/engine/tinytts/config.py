"""Sampling settings and limits."""

SAMPLE_RATE = 22_050
HOP = 256
LENGTH_SCALE = 1.0
SENTENCE_PAUSE_S = 0.2
# voice: (noise scale of the latent, noise scale of the durations)
VOICES = {"default": (0.667, 0.8), "joe": (0.667, 0.8), "joe-calm": (0.333, 0.4)}
MAX_INPUT_CHARS = 2000
MAX_QUEUED = 64
