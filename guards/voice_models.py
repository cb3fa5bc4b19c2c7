"""Built-in judge models of voices: whose voice it is, and what listeners would say of it. All run on the CPU.

The weights come from the models' own wheels. Of Resemblyzer and speechmos nothing else is used, so that neither librosa
nor webrtcvad need be there; distillmos imports torchaudio and does not use it.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from guards.models import JudgeModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pytest_rsi.audio import Audio

    Samples = NDArray[np.float32]

RATE_HZ = 16_000
THREADS = 2
VOICE_DBFS = -30.0
"""Resemblyzer was trained on speech no quieter than this; all speech is set to it, so that gain is no other voice."""
VOICE_WINDOW, VOICE_HOP, VOICE_BANDS, VOICE_FRAMES = 400, 160, 40, 160
VOICE_STEP = 77
"""Frames from one window of 1.6 s to the next: 1.3 windows a second, as in Resemblyzer."""
VOICE_COVERAGE = 0.75
DISTILLMOS_SAMPLES = 122_880
DNSMOS_SAMPLES = 144_160
PLCMOS_RATERS, PLCMOS_RATER_SIZE = 15, 64
PLCMOS_SAMPLES = 8_000
DNSMOS_FITS = {
    "ovrl": (-0.06766283, 1.11546468, 0.04602535),
    "sig": (-0.08397278, 1.22083953, 0.0052439),
    "bak": (-0.13166888, 1.60915514, -0.39604546),
}
"""The polynomials that map raw scores to those of listeners, as speechmos has them."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A model: the modules it needs, the command that installs those, and what loads it."""

    modules: Sequence[str]
    install: str
    load: Callable[[], Callable[[Audio], Any]]

    def missing(self) -> str:
        """Return what is not there and what to run, or nothing."""
        absent = [name for name in self.modules if importlib.util.find_spec(name) is None]
        return f"{', '.join(absent)} not found; run {self.install}" if absent else ""


@pytest.hookimpl
def pytest_rsi_judge_model(kind: str, name: str) -> Callable[..., Any] | None:
    """Return a built-in model of voices.

    Raises:
        JudgeModelError: its packages are not installed.
    """
    model = BUILT_IN.get((kind, name))
    if model is None:
        return None
    if missing := model.missing():
        raise JudgeModelError(f"judge model {name!r}: {missing}")
    return model.load()


def require_model(kind: str, name: str) -> None:
    """Check that the packages of a model are there, without importing them; another plugin's model is not looked for.

    Raises:
        ValueError: one is not; names them all and what to run.
    """
    model = BUILT_IN.get((kind, name))
    if model is not None and (missing := model.missing()):
        raise ValueError(f"judge model {name!r}: {missing}")


def load_resemblyzer() -> Callable[[Audio], Samples]:
    """Return Resemblyzer's voice encoder (Wan et al. 2018, generalised end-to-end loss): float32 [256] of unit length.

    Three LSTM layers over mel energies of 1.6 s, the mean over windows of it.
    """
    import torch

    _limit_threads()
    weights = _folder("resemblyzer") / "pretrained.pt"
    state = torch.load(weights, map_location="cpu", weights_only=True)["model_state"]
    lstm = torch.nn.LSTM(VOICE_BANDS, 256, num_layers=3, batch_first=True)
    linear = torch.nn.Linear(256, 256)
    for layer, prefix in ((lstm, "lstm."), (linear, "linear.")):
        layer.load_state_dict({key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)})

    def embed(audio: Audio) -> Samples:
        samples = resampled(audio)
        energy = float(np.mean(samples.astype(np.float64) ** 2))
        if not energy > 0:
            return np.zeros(256, np.float32)
        parts = torch.from_numpy(_voice_windows(samples * np.float32(10 ** (VOICE_DBFS / 20) / math.sqrt(energy))))
        with torch.inference_mode():
            _, (hidden, _) = lstm(parts)
            found = torch.nn.functional.normalize(torch.relu(linear(hidden[-1])), dim=1).mean(dim=0)
            return torch.nn.functional.normalize(found, dim=0).numpy()

    return embed


def load_distillmos() -> Callable[[Audio], dict[str, float]]:
    """Return DistillMOS (Stahl and Gamper 2025), which is blind to level.

    It sees 7.68 s: a longer answer gives the mean over windows.
    """
    import torch

    _limit_threads()
    # It is imported at the top of the package, and needed for reading files only.
    stand_in = ModuleType("torchaudio")
    absent = sys.modules.setdefault("torchaudio", stand_in) is stand_in
    try:
        from distillmos import ConvTransformerSQAModel
    finally:
        if absent:
            del sys.modules["torchaudio"]
    model = ConvTransformerSQAModel(load_weights=False, segmenting_in_forward=False)
    weights = _folder("distillmos") / "weights" / "distill_mos_v7.pt"
    model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True)["model"])
    model.eval()

    def score(audio: Audio) -> dict[str, float]:
        samples = resampled(audio)
        padded = np.pad(samples, (0, max(0, DISTILLMOS_SAMPLES - len(samples))))
        with torch.inference_mode():
            found = [float(model(torch.from_numpy(part)[None])) for part in windows(padded, DISTILLMOS_SAMPLES)]
        return {"distillmos": float(np.mean(found))}

    return score


def load_plcmos() -> Callable[[Audio], dict[str, float]]:
    """Return PLCMOS v2 (Diener et al. 2023), made for packet loss: holes, clicks, noise.

    The mean over fifteen raters as in speechmos, but always the same ones: there they are drawn anew for each answer.
    """
    session = _session(_folder("speechmos") / "plcmos_models" / "plcmos_v2.onnx")
    drawn = np.random.default_rng(0).normal(size=(PLCMOS_RATERS, 1, PLCMOS_RATER_SIZE))
    raters = drawn.astype(np.float32)

    def score(audio: Audio) -> dict[str, float]:
        samples = resampled(audio)
        shown = _log_spectrum(np.pad(samples, (0, max(0, PLCMOS_SAMPLES - len(samples)))))
        found = [session.run(None, {"degraded_audio": shown[None, None], "rater_embed": each})[0] for each in raters]
        return {"plcmos": float(np.mean(found))}

    return score


def load_dnsmos() -> Callable[[Audio], dict[str, float]]:
    """Return DNSMOS P.835 (Reddy et al. 2022): overall, signal and background.

    It sees 9.01 s: a shorter answer is repeated until it fills them, a longer one gives the mean over windows.
    """
    session = _session(_folder("speechmos") / "dnsmos_models" / "sig_bak_ovr.onnx")

    def score(audio: Audio) -> dict[str, float]:
        samples = resampled(audio)
        filled = np.resize(samples, max(len(samples), DNSMOS_SAMPLES))
        raw = [session.run(None, {"input_1": part[None]})[0][0] for part in windows(filled, DNSMOS_SAMPLES)]
        sig, bak, ovrl = np.array(raw, dtype=np.float64).T
        by_name = {"ovrl": ovrl, "sig": sig, "bak": bak}
        return {name: float(np.polyval(DNSMOS_FITS[name], values).mean()) for name, values in by_name.items()}

    return score


def resampled(audio: Audio) -> Samples:
    """Return the samples at 16 kHz, float32 [m] within -1..1: a resampler's ringing goes beyond."""
    from scipy.signal import resample_poly

    common = math.gcd(RATE_HZ, audio.rate_hz)
    samples = resample_poly(audio.samples, RATE_HZ // common, audio.rate_hz // common)
    clipped: Samples = np.clip(samples, -1, 1).astype(np.float32)
    return clipped


def windows(samples: Samples, size: int) -> list[Samples]:
    """Return windows of ``size`` that cover all samples (at least ``size``), evenly and with as few as that takes."""
    count = math.ceil(len(samples) / size)
    starts = np.linspace(0, len(samples) - size, count).astype(int)
    return [samples[start : start + size] for start in starts]


def _voice_windows(samples: Samples) -> Samples:
    """Return mel energies, float32 [windows, 160, 40]; the last window is left out where less than 75 % of it is heard.

    As librosa computes them: power of 25 ms Hann windows every 10 ms, bands after Slaney (1998).
    """
    heard = math.ceil((len(samples) + 1) / VOICE_HOP)
    starts = list(range(0, max(1, heard - VOICE_FRAMES + VOICE_STEP + 1), VOICE_STEP))
    covered = (len(samples) / VOICE_HOP - starts[-1]) / VOICE_FRAMES
    if covered < VOICE_COVERAGE and len(starts) > 1:
        starts.pop()
    size = max(len(samples), (starts[-1] + VOICE_FRAMES) * VOICE_HOP)
    edge = VOICE_WINDOW // 2
    padded = np.pad(samples, (edge, size - len(samples) + edge))
    frames = np.lib.stride_tricks.sliding_window_view(padded, VOICE_WINDOW)[::VOICE_HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(VOICE_WINDOW) / VOICE_WINDOW)
    energies = np.abs(np.fft.rfft(frames * hann, axis=1)) ** 2 @ _slaney_filters()
    parts: Samples = np.stack([energies[start : start + VOICE_FRAMES] for start in starts]).astype(np.float32)
    return parts


@functools.cache
def _slaney_filters() -> NDArray[np.float64]:
    """Return triangular filters of unit area from 0 to 8 kHz, float64 [201, 40] (Slaney 1998, Auditory Toolbox).

    The scale is linear below 1 kHz, 15 bands of it, and logarithmic above, 27 to each factor of 6.4.
    """
    linear_hz, break_hz = 200 / 3, 1000.0
    break_mel, step = break_hz / linear_hz, math.log(6.4) / 27
    mels = np.linspace(0, break_mel + math.log(RATE_HZ / 2 / break_hz) / step, VOICE_BANDS + 2)
    edges = np.where(mels < break_mel, mels * linear_hz, break_hz * np.exp(step * (mels - break_mel)))
    bins = np.fft.rfftfreq(VOICE_WINDOW, 1 / RATE_HZ)[:, None]
    rising = (bins - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - bins) / np.diff(edges)[1:]
    filters: NDArray[np.float64] = np.maximum(0, np.minimum(rising, falling)) * 2 / (edges[2:] - edges[:-2])
    return filters


def _log_spectrum(samples: Samples) -> Samples:
    """Return what PLCMOS sees, float32 [frames, 257]: log power of 32 ms Hamming windows, half over, in units of 20.

    As in speechmos, the power is taken of the magnitude; where it is 0 it counts as 120 dB below the least that is not.
    """
    window, hop = 512, 256
    count = math.ceil((len(samples) + hop) / hop)
    padded = np.pad(samples, (hop, (count - 1) * hop + window - hop - len(samples)))
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop]
    hamming = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(frames * hamming, axis=1)) ** 2
    silent = power == 0
    if silent.all():
        return np.full(power.shape, -8 * math.log(10) / 20, np.float32)
    least = math.log(power[~silent].min()) - 12 * math.log(10)
    logs = np.full(power.shape, least)
    np.log(power, out=logs, where=~silent)
    return (logs / 20).astype(np.float32)


def _session(path: Path) -> Any:  # noqa: ANN401  (ONNX Runtime has no types)
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    # Threads that spin while they wait would be heard in the next timed block.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _limit_threads() -> None:
    import torch

    torch.set_num_threads(min(THREADS, torch.get_num_threads()))


def _folder(module: str) -> Path:
    """Return where a package lies, without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise JudgeModelError(f"judge model: {module} is no installed package")
    return Path(spec.submodule_search_locations[0])


_SPEECHMOS = (("onnxruntime", "speechmos"), "pip install onnxruntime speechmos")
BUILT_IN = {
    ("speaker", "resemblyzer"): BuiltIn(
        ("torch", "resemblyzer"), "pip install --no-deps Resemblyzer==0.1.4 (and pip install torch)", load_resemblyzer
    ),
    ("mos", "distillmos"): BuiltIn(
        ("torch", "distillmos", "xls_r_sqa"),
        "pip install --no-deps distillmos==0.9.1 xls_r_sqa==0.1.0 (and pip install torch)",
        load_distillmos,
    ),
    ("mos", "plcmos"): BuiltIn(*_SPEECHMOS, load_plcmos),
    ("mos", "dnsmos"): BuiltIn(*_SPEECHMOS, load_dnsmos),
}
"""By kind and name."""
