"""A task: what to speed up and how it is judged, read from ``suites/<name>/task.toml``."""

from __future__ import annotations

import importlib.util
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

PACKAGE = Path(__file__).resolve().parent

Ratio = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class TaskError(ValueError):
    """A task cannot be used; the message is one line that says what to do."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Workload(_Table):
    """One ``[[workload]]``: a load shape. ``concurrency`` is for a closed loop, ``rate_hz`` for an open one.

    ``requests`` is how many a block has, ``max_words`` the most spoken words of a text (default: as they come).
    """

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    mode: Literal["offline", "streaming"]
    concurrency: Annotated[int, Field(ge=0)] = 0
    rate_hz: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    requests: Count
    max_words: Count | None = None

    @model_validator(mode="after")
    def _one_shape(self) -> Workload:
        if bool(self.concurrency) == bool(self.rate_hz):
            given = f"concurrency {self.concurrency}, rate_hz {self.rate_hz:g}"
            raise ValueError(f"{given}: give exactly one of concurrency (closed loop) and rate_hz (open loop)")
        return self


class TargetTable(_Table):
    """``[target]``: ``source`` is a folder of the task, or ``repository`` and ``ref`` name a git repository.

    ``patchable`` and ``frozen`` are glob patterns on paths in the target; frozen wins.
    """

    source: str | None = None
    repository: str | None = None
    ref: str | None = None
    patchable: tuple[str, ...] = Field(strict=False, min_length=1)
    frozen: tuple[str, ...] = Field(default=(), strict=False)
    max_patch_bytes: Count = 60_000
    max_files: Count = 20

    @model_validator(mode="after")
    def _one_origin(self) -> TargetTable:
        if (self.source is None) == (self.repository is None):
            raise ValueError("give exactly one of source (a folder) and repository (a git URL)")
        return self


class ServerTable(_Table):
    """``[server]``: how to start it. ``{python}``, ``{host}``, ``{port}`` and ``{device}`` are filled in.

    ``requires`` lists importable modules without which it cannot start, ``extra`` the extra that brings them.
    """

    command: tuple[str, ...] = Field(strict=False, min_length=1)
    start_timeout_s: Ratio = 60.0
    requires: tuple[str, ...] = Field(default=(), strict=False)
    extra: str = ""
    environment: dict[str, str] = {}


class DuelTable(_Table):
    """``[duel]``: how speed is compared (MEASUREMENT.md in the docs says what each figure is for)."""

    min_speedup: Annotated[float, Field(ge=1)] = 1.03
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.03
    blocks: Count = 2
    max_pairs: Annotated[int, Field(ge=3)] = 12
    confirm_pairs: Annotated[int, Field(ge=8)] = 8
    floor_pairs: Annotated[int, Field(ge=4)] = 6
    gate_pairs: Count = 2
    warmup_blocks: tuple[int, int] = Field(default=(1, 5), strict=False)
    warmup_requests: Count = 4
    warmup_within: Ratio = 0.1
    foreign_cpu_max: Ratio = 0.5


class AuditTable(_Table):
    """``[audit]``: how guards are audited. ``must_catch`` names faults and the size that has to be caught.

    ``requests`` is how many pairs one draw has, which is what a judgement would have; ``draws`` of them come from the
    ``pool`` harmed pairs, ``honest_draws`` from ``honest`` texts, each spoken with two seeds by two servers.
    """

    requests: Count = 48
    pool: Count = 64
    draws: Count = 20
    honest: Count = 104
    honest_draws: Count = 200
    must_catch: dict[str, float] = {}


class HardwareTable(_Table):
    """``[hardware]``: what the server runs on."""

    device: Literal["cpu", "cuda"] = "cpu"
    gpus: Annotated[int, Field(ge=0)] = 0


class TaskTable(_Table):
    """``[task]``: ``deterministic`` declares that an equal seed gives equal samples."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    kind: Literal["speech", "transcription"]
    title: str
    language: str = "en"
    deterministic: bool = False


class Task(_Table):
    """A validated ``task.toml``."""

    task: TaskTable
    target: TargetTable
    server: ServerTable
    duel: DuelTable = DuelTable()
    audit: AuditTable = AuditTable()
    hardware: HardwareTable = HardwareTable()
    workload: tuple[Workload, ...] = Field(strict=False, min_length=1)
    folder: Path

    @model_validator(mode="after")
    def _names_once(self) -> Task:
        names = [workload.name for workload in self.workload]
        if len(set(names)) != len(names):
            raise ValueError(f"workload names {names} are not unique")
        return self

    @property
    def name(self) -> str:
        """The task's name, as ``--rsi-task`` takes it."""
        return self.task.name

    @property
    def module(self) -> Path:
        """The test module of the suite."""
        return self.folder / f"test_{self.name}.py"


@cache
def tree() -> Path:
    """Return the folder that holds ``suites``, ``fixtures``, ``guards`` and ``audio_refs``.

    In a wheel they lie inside the package, in a checkout beside it.
    """
    for folder in (PACKAGE / "_tree", PACKAGE.parent):
        if (folder / "suites").is_dir():
            return folder
    raise TaskError(f"no suites beside or inside {PACKAGE}; install pytest-rsi again")


def task_names() -> list[str]:
    """Return the names of all tasks, sorted."""
    return sorted(path.parent.name for path in (tree() / "suites").glob("*/task.toml"))


def load_task(name: str) -> Task:
    """Return the task of that name.

    Raises:
        TaskError: there is no such task, or its file says something that it cannot; one line.
    """
    if name not in task_names():
        raise TaskError(f"unknown task {name!r}; --rsi-task takes one of: {', '.join(task_names())}")
    return read_task(tree() / "suites" / name / "task.toml")


def read_task(path: Path) -> Task:
    """Read and validate one ``task.toml``.

    Raises:
        TaskError: the file is not TOML, or a key is missing, unknown or out of range; names file, key and value.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        task = Task.model_validate({**table, "folder": path.parent})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise TaskError(f"{path}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "task.toml"
        given = repr(first["input"])[:80]
        raise TaskError(f"{path}: {where} = {given}: {first['msg']}; {error.error_count()} fault(s) in all") from None
    if task.name != path.parent.name:
        raise TaskError(f"{path}: task.name = {task.name!r}, expected the folder's name {path.parent.name!r}")
    return task


def check_requirements(task: Task) -> None:
    """Raise ``TaskError`` in one line if this machine lacks what the task's server needs."""
    missing = [module for module in task.server.requires if importlib.util.find_spec(module) is None]
    if missing:
        hint = f"pip install 'pytest-rsi[{task.server.extra}]'" if task.server.extra else "install them"
        raise TaskError(f"task {task.name!r} needs the Python module(s) {', '.join(missing)}, not installed; {hint}")
    if task.hardware.device == "cuda" and not Path("/dev/nvidiactl").exists():
        raise TaskError(
            f"task {task.name!r} needs {task.hardware.gpus} CUDA GPU(s), found none; "
            "run --rsi-task tiny_tts on a CPU, or use a machine with a GPU"
        )
