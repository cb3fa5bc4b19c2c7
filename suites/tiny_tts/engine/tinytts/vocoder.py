"""Latent frames to samples, window by window."""

import torch

from tinytts.config import HOP, SAMPLE_RATE

WINDOW = 48
# The decoder sees 12 frames to each side: with them, windows join without a seam.
CONTEXT = 12


class Vocoder:
    def __init__(self, model, device):
        self.model = model
        self.device = device

    @torch.inference_mode()
    def run(self, latent, job):
        """Decode one sentence; hand over each window's samples, a list of floats in -1..1, as it is done."""
        frames = len(latent[0])
        for start in range(0, frames, WINDOW):
            if job.cancelled:
                return
            stop = min(start + WINDOW, frames)
            first, last = max(0, start - CONTEXT), min(frames, stop + CONTEXT)
            window = torch.tensor([row[first:last] for row in latent], device=self.device)
            samples = self.model.decode(window[None])[0, 0]
            samples = samples[(start - first) * HOP : (stop - first) * HOP]
            job.prosody.append(self.prosody(samples))
            job.emit(samples.tolist())

    def prosody(self, samples):
        """Return pitch and energy of each frame of a window, by autocorrelation."""
        size = 1024
        padded = torch.nn.functional.pad(samples, (size // 2, size // 2))
        frames = padded.unfold(0, size, HOP // 4) * torch.hann_window(size, device=self.device)
        spectrum = torch.fft.rfft(frames, n=2 * size)
        correlation = torch.fft.irfft(spectrum * spectrum.conj())[:, :size]
        low, high = SAMPLE_RATE // 400, SAMPLE_RATE // 60
        peak = correlation[:, low:high].argmax(dim=1) + low
        return {"f0_hz": (SAMPLE_RATE / peak).tolist(), "energy": correlation[:, 0].tolist()}
