"""The ``--rsi-*`` options: what they are called, what they accept, and their values as plain data."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

_MODES = ("rsi_agent", "rsi_confirm", "rsi_candidate", "rsi_audit", "rsi_calibrate")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class OptionError(ValueError):
    """An option's value makes no sense; the message is one line."""


@dataclass(frozen=True, slots=True)
class Options:
    """The values of one command line; see ``pytest --help`` for what each means."""

    rsi_task: str | None = None
    rsi_candidate: tuple[str, ...] = ()
    rsi_target: str | None = None
    rsi_base: str | None = None
    rsi_agent: str | None = None
    rsi_rounds: int | None = None
    rsi_budget: float | None = None
    rsi_until: str = "first"
    rsi_allow_blind: bool = False
    rsi_confirm: str | None = None
    rsi_audit: bool = False
    rsi_calibrate: bool = False
    rsi_json: str | None = None
    rsi_report: str | None = None
    rsi_ledger: str | None = None
    rsi_isolation: str | None = None
    rsi_seed: int | None = None
    rsi_confidence: float = 0.99
    rsi_max_pairs: int | None = None
    rsi_blocks: int | None = None
    rsi_min_speedup: float | None = None

    def check(self) -> None:
        """Raise ``OptionError`` if options contradict each other."""
        modes = [
            name
            for name in ("rsi_agent", "rsi_confirm", "rsi_candidate", "rsi_audit", "rsi_calibrate")
            if getattr(self, name)
        ]
        if len(modes) > 1:
            names = " and ".join(_flag(name) for name in modes)
            raise OptionError(f"{names} exclude each other; give one")
        for name in ("rsi_rounds", "rsi_budget", "rsi_until", "rsi_allow_blind"):
            if not self.rsi_agent and getattr(self, name) != getattr(Options(), name):
                raise OptionError(f"{_flag(name)} belongs to --rsi-agent; add one or leave it out")
        if self.rsi_report and not (self.rsi_audit or self.rsi_calibrate):
            raise OptionError("--rsi-report writes what --rsi-audit or --rsi-calibrate finds; add one")
        if self.rsi_report and not self.rsi_report.endswith((".html", ".md")):
            raise OptionError(f"--rsi-report {self.rsi_report!r}, expected a file that ends in .html or .md")
        if self.rsi_base and not self.rsi_target:
            raise OptionError("--rsi-base names a revision of --rsi-target; add it")


def add_options(parser: pytest.Parser) -> None:
    """Add all options to pytest's parser."""
    group = parser.getgroup("rsi", "pytest-rsi: measure, judge and improve speech servers")
    add = group.addoption
    add("--rsi-task", metavar="TASK", help="the task to measure; alone: its baseline, guards and noise floor")
    add(
        "--rsi-candidate",
        action="append",
        default=[],
        metavar="PATCH",
        help="judge a patch file, a folder of patches, or OLD..NEW of --rsi-target; may be repeated",
    )
    add("--rsi-target", metavar="DIR", help="take the target from a checkout; what it adds to --rsi-base is judged")
    add("--rsi-base", metavar="REV", help="the baseline revision of --rsi-target (default: HEAD)")
    add("--rsi-agent", metavar="AGENT", help="loop: patches:DIR, or a shell command that edits a workspace")
    add("--rsi-rounds", type=_count, metavar="N", help="loop: at most so many rounds")
    add("--rsi-budget", type=_duration, metavar="TIME", help="loop: at most so long, e.g. 90s, 30m, 8h")
    add(
        "--rsi-until",
        choices=("first", "budget"),
        default="first",
        help="loop: stop at the first confirmed candidate, or go on until rounds or budget are used up",
    )
    add(
        "--rsi-allow-blind",
        action="store_true",
        help="loop: search with guards that an audit showed to be blind; every result says so",
    )
    add("--rsi-confirm", metavar="ID", help="run the clean room alone for a candidate of the ledger")
    add(
        "--rsi-audit",
        action="store_true",
        help="do harm of known size to the baseline's answers and report which guard notices; -k FAULT for some",
    )
    add(
        "--rsi-calibrate",
        action="store_true",
        help="measure what honest reruns differ by, and the margins that each guard would need",
    )
    add("--rsi-report", metavar="FILE", help="audit: write the matrix as a page (.html) or as tables (.md)")
    add("--rsi-json", metavar="FILE", help="write the verdicts as JSON; - for standard output")
    add("--rsi-ledger", metavar="FILE", help="the ledger (default: .rsi/ledger.sqlite)")
    add(
        "--rsi-isolation",
        choices=("bwrap", "process"),
        help="what the clean room is isolated by (default: bwrap where it works, else process with a caveat)",
    )
    add("--rsi-seed", type=int, metavar="N", help="draw development requests from this seed (default: a fresh one)")
    add(
        "--rsi-confidence",
        type=_confidence,
        default=0.99,
        metavar="P",
        help="confidence of the speed-up's interval (default: 0.99)",
    )
    add("--rsi-max-pairs", type=_count, metavar="N", help="at most so many launch pairs (default: the task's)")
    add("--rsi-blocks", type=_count, metavar="N", help="blocks of a workload in each launch pair (default: the task's)")
    add("--rsi-min-speedup", type=_speedup, metavar="X", help="smallest speed-up worth having (default: the task's)")


def read_options(config: pytest.Config) -> Options:
    """Return the values that pytest parsed.

    Raises:
        OptionError: they contradict each other.
    """
    values = {field.name: config.getoption(field.name) for field in dataclasses.fields(Options)}
    options = Options(**values | {"rsi_candidate": tuple(values["rsi_candidate"])})
    options.check()
    return options


def load_options(body: dict[str, Any]) -> Options:
    """Return options that went through JSON."""
    return Options(**body | {"rsi_candidate": tuple(body["rsi_candidate"])})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise _usage(f"{text!r}, expected a whole number from 1 on")
    return int(text)


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None or float(match[1]) == 0:
        raise _usage(f"{text!r}, expected a time such as 90s, 30m or 8h")
    return float(match[1]) * _UNITS[match[2]]


def _confidence(text: str) -> float:
    value = _number(text)
    if not 0.5 <= value < 1:
        raise _usage(f"{text!r}, expected a number from 0.5 to below 1, such as 0.99")
    return value


def _speedup(text: str) -> float:
    value = _number(text)
    if not 1 <= value < 100:
        raise _usage(f"{text!r}, expected a ratio from 1 on, such as 1.05")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _usage(f"{text!r}, expected a number") from None


def _usage(message: str) -> Exception:
    import argparse

    return argparse.ArgumentTypeError(message)
