"""Latent frames to samples, window by window."""

import torch

from tinytts.config import HOP, SAMPLE_RATE, SENTENCE_PAUSE_S

# The decoder sees 12 frames to each side: with them, windows join without a seam.
CONTEXT = 12
WINDOW = 64


class Vocoder:
    def __init__(self, model, device):
        self.model = model
        self.device = device

    @torch.inference_mode()
    def run(self, latent, job):
        """Decode one sentence and hand over each window's samples as they are done."""
        for start, stop in self.windows(self.frames(latent)):
            if job.cancelled:
                return
            samples = self.decode(latent, start, stop)
            job.prosody.append(self.prosody(samples))
            self.hand_over(samples, job)

    def windows(self, frames):
        """Return the (start, stop) of every window."""
        return [(start, min(start + WINDOW, frames)) for start in range(0, frames, WINDOW)]

    def decode(self, latent, start, stop):
        """Return the samples of one window, float32 [256 * (stop - start)]."""
        first, last = max(0, start - CONTEXT), min(self.frames(latent), stop + CONTEXT)
        window = torch.tensor([row[first:last] for row in latent], device=self.device)
        samples = self.model.decode(window[None])[0, 0]
        return samples[(start - first) * HOP : (stop - first) * HOP]

    def frames(self, latent):
        return len(latent[0])

    def hand_over(self, samples, job):
        job.emit(samples.tolist())

    def pause(self, job):
        """Hand over the silence between two sentences."""
        self.hand_over(torch.zeros(int(SENTENCE_PAUSE_S * SAMPLE_RATE)), job)

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
