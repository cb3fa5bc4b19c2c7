"""The hooks that suites, fixtures, guards and users implement."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import GuardFamily
    from pytest_rsi.task import Task
    from pytest_rsi.verdict import Verdict


@pytest.hookspec
def pytest_rsi_guards() -> Sequence[GuardFamily]:  # type: ignore[empty-body]
    """Return guard families; each registers its marker."""


@pytest.hookspec(firstresult=True)
def pytest_rsi_requests(task: Task, seed: int, held_out: bool) -> RequestSource | None:
    """Return the source of a task's requests, or ``None`` to leave it to another plugin.

    The same seed draws the same requests. With ``held_out`` none may be one that development requests could be.
    """


@pytest.hookspec
def pytest_rsi_candidate_judged(verdict: Verdict) -> None:
    """Take a verdict, when a candidate or the baseline has been judged."""
