"""The terminal's tables: one verdict, and the rounds of a loop, each read in ten seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_rsi.stats import detectable_effect

if TYPE_CHECKING:
    from typing import IO

    from pytest_rsi.guard import GuardResult
    from pytest_rsi.stats import NoiseFloor
    from pytest_rsi.task import Task
    from pytest_rsi.verdict import Speed, Verdict

WHY_CHARS = 160
_STYLES = {"accepted": "bold green", "rejected": "bold red"}
_OUTCOMES = {"passed": "green", "failed": "bold red", "undecided": "bold yellow"}


@dataclass(frozen=True, slots=True)
class Round:
    """One candidate of a loop: what the search said, and the clean room if it was asked (ledger bodies)."""

    search: dict[str, Any]
    clean_room: dict[str, Any] | None


def plain(text: str, width: int = 200) -> str:
    """Return text of a target, patch or agent as data: no control characters, one line, at most ``width`` long."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line if len(line) <= width else line[: width - 3] + "..."


def print_verdict(console: Console, verdict: Verdict) -> None:
    """Print arms, speed-ups, guards, caveats, the verdict and why."""
    name = f"candidate {verdict.candidate}" if verdict.candidate else "baseline against itself"
    title = f"{verdict.task}: {name}" + (f" - {plain(verdict.title)}" if verdict.title else "")
    console.print(Text(title, style="bold"))
    arms = f"baseline {verdict.base[:12]}"
    if verdict.commit != verdict.base:
        arms += f", candidate {verdict.commit[:12]} [{verdict.overhead_class}]"
    console.print(
        Text(f"{arms}; machine {verdict.machine.fingerprint}: {verdict.machine.cores} cores, {verdict.machine.cpu}")
    )
    if verdict.speeds:
        console.print(_speed_table(verdict))
    if verdict.guards:
        console.print(_guard_table(verdict.guards))
    for caveat in verdict.caveats:
        console.print(Text(f"caveat: {caveat}", style="yellow"))
    console.print(Text(_how_measured(verdict), style="dim"))
    what = {"full": verdict.status, "gate": f"gate: {verdict.status}", "baseline": "baseline measured"}[verdict.scope]
    line = Text(what.upper(), style=_STYLES[verdict.status])
    if verdict.reasons:
        line.append(
            "".join(f"\n  {reason.code}: {plain(reason.text, 400)}" for reason in verdict.reasons), style="default"
        )
    elif verdict.decision:
        line.append(f": {verdict.decision}", style="default")
    console.print(line)
    console.print()


def loop_table(task: Task, rounds: list[Round], floor: NoiseFloor | None) -> Table:
    """Return the table of a loop: every candidate, both verdicts, the speed-up and why."""
    noise = f"noise floor +-{math.expm1(floor.half_width):.1%}" if floor else "no noise floor"
    if floor is not None:
        least = detectable_effect(floor.sd, task.duel.confirm_pairs, confidence=0.99, power=0.9)
        noise += f", clean room could detect {least * max(task.duel.min_speedup, math.exp(floor.half_width)):.2f}x"
    table = Table(title=f"{task.name}: {len(rounds)} candidate(s); {noise}; asked for {task.duel.min_speedup:g}x")
    for column, fixed in (("candidate", True), ("verdict", True), ("speed-up", True), ("why", False)):
        table.add_column(column, overflow="fold", no_wrap=fixed)
    for row in rounds:
        final = row.clean_room or row.search
        verdict, style = _round_verdict(row)
        codes = ", ".join(dict.fromkeys(reason["code"] for reason in final["reasons"]))
        why = plain(final["reasons"][0]["text"], WHY_CHARS) if final["reasons"] else plain(final["title"])
        table.add_row(
            f"{plain(final['candidate'], 40)}\n{final['class']}",
            Text(verdict, style=style),
            speed_text(final).replace(" (", "\n(") or "not measured",
            Text(f"{codes}: {why}" if codes else why),
        )
    return table


def _round_verdict(row: Round) -> tuple[str, str]:
    if row.clean_room is None:
        return ("passed the search", "yellow") if row.search["accepted"] else ("refused", "red")
    if row.clean_room["accepted"]:
        return "confirmed in the\nclean room", "bold green"
    return "refused in the\nclean room", "bold red"


def console(file: IO[str] | None = None) -> Console:
    """Return a console: as wide as the terminal, 120 columns where there is none."""
    made = Console(file=file, highlight=False)
    if not made.is_terminal:
        made.width = max(made.width, 120)
    return made


def speed_text(body: dict[str, Any]) -> str:
    """Return the overall speed-up of a verdict's JSON with its interval, or an empty string."""
    for speed in body["speeds"]:
        if speed["workload"] == "all" and speed["ratio"] is not None:
            return f"{speed['ratio']:.3f}x {_between(speed['low'], speed['high'], speed['confidence'])}"
    return ""


def _between(low: float | None, high: float | None, confidence: float | None) -> str:
    if low is None or high is None or not 0 < low <= high < math.inf:
        return "(too few launch pairs)"
    return f"({confidence or 0:.1%} interval {low:.3f}..{high:.3f})"


def _speed_table(verdict: Verdict) -> Table:
    other = "candidate" if verdict.candidate else "itself"
    table = Table("workload", "baseline req/s", f"{other} req/s", "ratio", "interval", "launch pairs")
    for speed in verdict.speeds:
        style = "bold" if speed.workload == "all" else ""
        table.add_row(
            speed.workload,
            _rps(speed.baseline_rps),
            _rps(speed.candidate_rps),
            f"{speed.ratio:.3f}x",
            _between(speed.low, speed.high, speed.confidence),
            _pairs(speed),
            style=style,
        )
    return table


def _rps(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else ""


def _pairs(speed: Speed) -> str:
    shown = [f"{ratio:.2f}" for ratio in speed.pairs[:8]]
    return " ".join(shown) + (f" ... {len(speed.pairs)} in all" if len(speed.pairs) > 8 else "")


def _guard_table(guards: tuple[GuardResult, ...]) -> Table:
    table = Table("guard", "outcome", "what it found")
    for result in guards:
        table.add_row(result.guard, Text(result.outcome, style=_OUTCOMES[result.outcome]), plain(result.reason, 300))
    return table


def _how_measured(verdict: Verdict) -> str:
    timing = verdict.timing
    parts = [f"{len(verdict.speeds[-1].pairs) if verdict.speeds else 0} launch pairs"]
    if math.isfinite(verdict.detectable):
        parts.append(f"could detect {verdict.detectable:.3f}x with 90 % power")
    if verdict.floor is not None:
        parts.append(f"noise floor +-{math.expm1(verdict.floor.half_width):.1%}")
    parts.append("held-out requests" if verdict.held_out else f"development requests (seed {verdict.seed})")
    parts.append(f"isolation {verdict.isolation}")
    parts.append(
        f"{timing.wall_s:.0f} s: starting {timing.starting_s:.0f}, warming {timing.warming_s:.0f}, "
        f"timed {timing.timed_s:.0f}, listening {timing.guards_s:.0f}, measured again {timing.discarded_s:.0f}, "
        f"overhead {timing.overhead_s:.1f}"
    )
    return "; ".join(parts)
