"""The known-answer patches: their headers, that they apply, that the honest ones change no sample and others do."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from guards import pytest_rsi_guards
from guards.contract import PROMISES
from pytest_rsi.audio import decode
from pytest_rsi.candidate import OVERHEAD_CLASSES, read_candidates
from pytest_rsi.recording import SpeechRequest
from tests.engine import SUITE, patched, serving, speak

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_rsi.recording import Exchange

PATCHES = SUITE / "patches"
CANDIDATES = {candidate.name: candidate for candidate in read_candidates(PATCHES)}
TOGETHER = "0004-all-together"
HONEST = [name for name, candidate in CANDIDATES.items() if candidate.expect == "accepted" and name != TOGETHER]
AUDIBLE = [
    name
    for name, candidate in CANDIDATES.items()
    if any(reason.startswith("guard:") for reason in candidate.reasons)
    and candidate.reasons != ("guard:contract-seed",)
]
"""What can be told from one answer to each text: not answers that are kept for the next caller."""
REQUESTS = [
    SpeechRequest("a", "The farmer sold his last two horses.", seed=1),
    SpeechRequest("b", "Did anyone see the red bus? It was early today.", seed=2, speed=1.1),
    SpeechRequest("c", "We met 14 students at the river.", seed=3, stream=True, response_format="pcm"),
    SpeechRequest("d", "Why not?", seed=4, stream=True, response_format="pcm", stream_format="sse"),
]
# Of about one length, at one speed, in flight together, each of two windows or more.
PROBES = [
    SpeechRequest("e", "We met 14 students at the old river.", seed=5, speed=1.1, response_format="flac"),
    SpeechRequest("f", "The farmer sold his last two horses.", seed=6, speed=1.1, stream=True, response_format="pcm"),
]
WRONG = replace(PROBES[0], id="g", extra={"voice": "ottilie"})


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


def test_every_guard_that_a_header_names_is_there() -> None:
    markers = {family.marker for family in pytest_rsi_guards()}
    guards = {
        reason.removeprefix("guard:")
        for candidate in CANDIDATES.values()
        for reason in candidate.reasons
        if reason.startswith("guard:")
    }
    assert {name.split("-")[0] for name in guards} <= markers
    assert {name.removeprefix("contract-") for name in guards if name.startswith("contract-")} <= set(PROMISES)


@pytest.fixture(scope="module")
def unharmed() -> Sequence[Exchange]:
    with serving() as url:
        return speak(url, *PROBES, WRONG)


@pytest.mark.slow
@pytest.mark.parametrize("name", AUDIBLE)
def test_a_harmful_patch_answers_and_does_harm(name: str, unharmed: Sequence[Exchange], tmp_path: Path) -> None:
    with serving(patched(tmp_path, PATCHES / f"{name}.patch")) as url:
        answers = speak(url, *PROBES, WRONG)
    pairs = [
        (decode(before).samples, decode(after).samples) for before, after in zip(unharmed[:2], answers[:2], strict=True)
    ]
    same = all(len(before) == len(after) and np.allclose(before, after, atol=1e-4) for before, after in pairs)
    assert unharmed[2].status == 400
    assert not same or answers[2].status == 200


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
