"""The machine: what makes two results comparable, and whether anybody else worked on it during a block."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import psutil

_PACKAGES = ("torch", "numpy", "aiohttp", "uvicorn", "onnx", "pytest-rsi")


@dataclass(frozen=True, slots=True)
class Machine:
    """What a figure depends on and a patch does not change. Results are comparable if ``fingerprint`` is equal."""

    cpu: str
    cores: int
    memory_gib: int
    kernel: str
    python: str
    governor: str
    packages: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits over all fields."""
        return hashlib.sha256(repr(sorted(asdict(self).items())).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU seconds since boot, over all cores: ``busy_s`` of everybody, ``ours_s`` of this process and those it started.

    ``stolen_s`` is what the hypervisor gave to other guests.
    """

    busy_s: float
    ours_s: float
    stolen_s: float


def read_machine() -> Machine:
    """Return the machine this process runs on."""
    info = _read("/proc/cpuinfo")
    models = {line.partition(":")[2].strip() for line in info.splitlines() if line.startswith("model name")}
    return Machine(
        cpu=" + ".join(sorted(models)) or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(psutil.virtual_memory().total / 2**30),
        kernel=platform.release(),
        python=".".join(map(str, sys.version_info[:3])),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or "unknown",
        packages=tuple(f"{name} {version}" for name in _PACKAGES if (version := _version(name))),
    )


def cpu_use(keepers: tuple[int, ...]) -> CpuUse:
    """Return the CPU time used so far by everybody, by this process with the given process trees, and stolen."""
    times = psutil.cpu_times()
    busy = times.user + times.nice + times.system + times.irq + times.softirq
    ours = sum(_tree_cpu_s(psutil.Process(pid)) for pid in keepers if psutil.pid_exists(pid))
    own = psutil.Process().cpu_times()
    return CpuUse(busy_s=busy, ours_s=ours + own.user + own.system, stolen_s=times.steal)


def foreign_cores(before: CpuUse, after: CpuUse, elapsed_s: float) -> float:
    """Return how many cores' worth of time others took between two readings: neighbours and strangers."""
    others = (after.busy_s - before.busy_s) - (after.ours_s - before.ours_s) + (after.stolen_s - before.stolen_s)
    return max(0.0, others / elapsed_s) if elapsed_s > 0 else 0.0


def _tree_cpu_s(root: psutil.Process) -> float:
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
    return total


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
