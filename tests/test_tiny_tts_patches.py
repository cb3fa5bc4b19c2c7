"""The known-answer patches: their headers, that they apply, and that the honest ones change no sample."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_rsi.audio import decode
from pytest_rsi.candidate import OVERHEAD_CLASSES, read_candidates
from pytest_rsi.recording import SpeechRequest
from tests.engine import SUITE, patched, serving, speak

if TYPE_CHECKING:
    from pathlib import Path

PATCHES = SUITE / "patches"
CANDIDATES = {candidate.name: candidate for candidate in read_candidates(PATCHES)}
TOGETHER = "0004-all-together"
HONEST = [name for name, candidate in CANDIDATES.items() if candidate.expect == "accepted" and name != TOGETHER]
REQUESTS = [
    SpeechRequest("a", "The farmer sold his last two horses.", seed=1),
    SpeechRequest("b", "Did anyone see the red bus? It was early today.", seed=2, speed=1.1),
    SpeechRequest("c", "We met 14 students at the river.", seed=3, stream=True, response_format="pcm"),
    SpeechRequest("d", "Why not?", seed=4, stream=True, response_format="pcm", stream_format="sse"),
]


def test_there_is_one_honest_patch_for_each_class() -> None:
    assert sorted(CANDIDATES[name].overhead_class for name in HONEST) == sorted(set(OVERHEAD_CLASSES) - {"other"})


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_patch_has_a_whole_header_and_applies_exactly(name: str, tmp_path: Path) -> None:
    candidate = CANDIDATES[name]
    assert candidate.title != name
    assert candidate.rationale
    assert candidate.author
    assert candidate.expect in ("accepted", "rejected")
    assert (candidate.expect == "rejected") == bool(candidate.reasons)
    tree = patched(tmp_path, PATCHES / f"{name}.patch")
    files = [str(path) for path in tree.rglob("*.py")]
    subprocess.run(["python3", "-m", "py_compile", *files], check=True)


@pytest.mark.slow
def test_honest_patches_alone_and_all_together_change_no_sample(tmp_path: Path) -> None:
    with serving() as url:
        baseline = [decode(answer).samples for answer in speak(url, *REQUESTS)]
    paths = [PATCHES / f"{name}.patch" for name in HONEST]
    for number, chosen in enumerate([*([path] for path in paths), paths, [PATCHES / f"{TOGETHER}.patch"]]):
        with serving(patched(tmp_path / str(number), *chosen)) as url:
            answers = [decode(answer).samples for answer in speak(url, *REQUESTS)]
        for before, after in zip(baseline, answers, strict=True):
            assert before.shape == after.shape, chosen
            assert np.max(np.abs(before - after)) <= 1e-4, chosen
