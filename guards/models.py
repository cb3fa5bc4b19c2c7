"""Judge models by name: recognisers, voice embeddings, predicted opinion scores. Built-ins, or what a plugin brings."""

from __future__ import annotations

import functools
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pluggy import HookRelay

_hooks: list[HookRelay] = []


class JudgeModelError(RuntimeError):
    """The judge cannot listen; the message is one line that says what to install or change."""


def use_hooks(relay: HookRelay) -> None:
    """Ask this run's plugins for models from now on."""
    _hooks[:] = [relay]
    load.cache_clear()


@functools.cache
def load(kind: str, name: str) -> Callable[..., Any]:
    """Return a model, loaded once a process: what the first plugin that knows ``name`` returns, or the built-in one.

    ``kind`` says what it takes and gives, as ``pytest_rsi_judge_model`` lists.

    Raises:
        JudgeModelError: no plugin knows it.
    """
    from guards import recognisers, voice_models

    asked: list[Callable[..., Any]] = [relay.pytest_rsi_judge_model for relay in _hooks]
    for ask in (*asked, recognisers.pytest_rsi_judge_model, voice_models.pytest_rsi_judge_model):
        model: Callable[..., Any] | None = ask(kind=kind, name=name)
        if model is not None:
            return model
    raise JudgeModelError(
        f"judge model {name!r} ({kind}) is unknown; it is none of the built-in ones, and no plugin's hook "
        "pytest_rsi_judge_model returns it"
    )


def require(modules: Sequence[str], extra: str = "tiny") -> None:
    """Check that the packages of a model are there, without importing them.

    Raises:
        ValueError: one is not; names them all and what to run.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"judge model: {', '.join(missing)} not found; run pip install 'pytest-rsi[{extra}]'")
