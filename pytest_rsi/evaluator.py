"""How far a task's evaluator can be trusted: what its last audit showed, and whether it is still the same evaluator."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pytest_rsi.task import tree

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rsi.ledger import Ledger
    from pytest_rsi.task import Task

CAUGHT = 0.95
"""A size is caught when at least this share of draws fails."""
SHIPPED = "audit.json"
"""What a suite carries beside its ``task.toml``: its own last audit, as ``--rsi-json`` wrote it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of an evaluator. ``blind``: a fault that the task says must be caught was not.

    ``text`` is one line that says so and what to do, empty for ``audited``.
    """

    state: Literal["audited", "unaudited", "blind"]
    text: str = ""


def evaluator_digest(task: Task) -> str:
    """Return the SHA-256 of all that decides what is caught: guards, faults, texts, suite and task."""
    folders = [tree() / name for name in ("guards", "faults", "fixtures")]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    found = hashlib.sha256()
    for path in [*files, tree() / "suites/speech.py", task.module, task.folder / "task.toml"]:
        found.update(f"{path.relative_to(tree()) if path.is_relative_to(tree()) else path.name}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def standing(task: Task, ledger: Ledger) -> Standing:
    """Return what the ledger's last full audit of this evaluator showed, or the one that the suite carries."""
    digest = evaluator_digest(task)
    recorded = [event.body for event in ledger.events("audit") if event.body.get("evaluator") == digest]
    shipped = _shipped(task.folder / SHIPPED)
    for report in [*reversed(recorded), *([shipped] if shipped.get("evaluator") == digest else [])]:
        missed = _missed(task, report)
        if missed is not None:
            text = f"blind evaluator: {', '.join(missed)} escaped the audit; make the guards catch it"
            return Standing("blind", text) if missed else Standing("audited")
    return Standing("unaudited", f"unaudited evaluator: run pytest --rsi-task {task.name} --rsi-audit")


def _missed(task: Task, report: dict[str, Any]) -> list[str] | None:
    """Return the faults of ``must_catch`` that were not caught, ``None`` if one of them was not tried."""
    missed = []
    for name, size in task.audit.must_catch.items():
        tried = [catch for catch in report["catches"] if catch["fault"] == name and catch["size"] == size]
        if not tried:
            return None
        missed += [
            f"{name} {size:g} ({catch['regime']})" for catch in tried if catch["failed"] < CAUGHT * catch["draws"]
        ]
    return missed


def _shipped(path: Path) -> dict[str, Any]:
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    report = body.get("audit", body) if isinstance(body, dict) else {}
    return report if isinstance(report, dict) else {}
