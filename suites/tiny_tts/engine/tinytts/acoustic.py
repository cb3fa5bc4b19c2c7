"""Phoneme ids to the decoder's latent frames."""

import torch

from tinytts.config import LENGTH_SCALE, VOICES


class Acoustic:
    def __init__(self, model, device):
        self.model = model
        self.device = device

    @torch.inference_mode()
    def run(self, ids, seed, voice, speed):
        """Return the latent of one sentence as a list of 192 rows, one value a frame."""
        latent_noise, duration_noise = VOICES[voice]
        generator = torch.Generator().manual_seed(seed)
        hidden, mean, log_scale = self.model.encode(torch.tensor([ids], device=self.device))
        noise = torch.randn(1, 2, len(ids), generator=generator).to(self.device) * duration_noise
        log_durations = self.model.log_durations(hidden, noise)[0, 0]
        durations = torch.ceil(torch.exp(log_durations) * LENGTH_SCALE / speed)
        frames_mean, frames_scale = self.expand(mean, durations), self.expand(log_scale, durations)
        noise = torch.randn(frames_mean.shape, generator=generator).to(self.device)
        latent = self.model.flow(frames_mean + noise * torch.exp(frames_scale) * latent_noise)
        return latent[0].tolist()

    def expand(self, x, durations):
        """Repeat every phoneme's column for as many frames as it lasts."""
        columns = []
        for position in range(x.shape[2]):
            for _ in range(int(durations[position])):
                columns.append(x[:, :, position : position + 1])
        return torch.cat(columns, dim=2)
