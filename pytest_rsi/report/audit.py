"""An audit as a person reads it: a matrix fault by guard, for the terminal, as HTML and as Markdown."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from pytest_rsi.evaluator import CAUGHT

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Row:
    """One fault: its sizes from least to most harm, and the smallest size caught, by guard and by all together."""

    fault: str
    unit: str
    hears: str
    sizes: tuple[float, ...]
    wanted: float | None
    together: float | None
    by_guard: dict[str, float | None]


def rows(report: dict[str, Any], regime: str) -> list[Row]:
    """Return the matrix of one regime: ``None`` is a size never caught, an absent guard one never asked."""
    found = []
    for fault in report["faults"]:
        name, sizes = fault["name"], tuple(fault["sizes"])
        mine = [trial for trial in report["trials"] if trial["fault"] == name and trial["regime"] == regime]
        catches = [catch for catch in report["catches"] if catch["fault"] == name and catch["regime"] == regime]
        guards = sorted({trial["guard"] for trial in mine})
        by_guard = {guard: _smallest([trial for trial in mine if trial["guard"] == guard], sizes) for guard in guards}
        wanted = report["must_catch"].get(name)
        row = Row(name, fault["unit"], fault["hears"], sizes, wanted, _smallest(catches, sizes), by_guard)
        if mine:
            found.append(row)
    return found


def _smallest(trials: list[dict[str, Any]], sizes: tuple[float, ...]) -> float | None:
    """Return the smallest size from which on every size is caught."""
    shares = {trial["size"]: trial["failed"] / trial["draws"] for trial in trials}
    smallest = None
    for size in reversed(sizes):
        if shares.get(size, 0.0) < CAUGHT:
            break
        smallest = size
    return smallest


def print_audit(console: Console, report: dict[str, Any]) -> None:
    """Print what each guard caught, what none caught, and what was caught wrongly."""
    for regime in report["regimes"]:
        found = rows(report, regime)
        if not found:
            continue
        table = Table(
            title=f"{regime} pairs: smallest size caught in {CAUGHT:.0%} of draws of {report['requests']} pairs"
        )
        table.add_column("fault", no_wrap=True)
        table.add_column("sizes tried")
        table.add_column("caught from", no_wrap=True)
        table.add_column("by")
        for row in found:
            table.add_row(row.fault, _sizes(row), _together(row), _by(row))
        console.print(table)
    if report["alarms"]:
        table = Table(title="false alarms on honest pairs, with the exact 95 % interval")
        for column in ("guard", "pairs", "failed", "interval", "could not tell"):
            table.add_column(column, no_wrap=True)
        for alarms in report["alarms"]:
            low, high = alarms["interval"]
            draws = alarms["draws"]
            table.add_row(
                alarms["guard"],
                alarms["regime"],
                f"{alarms['failed']} of {draws}",
                f"{low:.1%}..{high:.1%}",
                f"{alarms['undecided']} of {draws}",
            )
        console.print(table)

    if report["margins"]:
        table = Table(title="margins: what honest draws need, so that 99 % of them pass")
        for column in _MARGINS:
            table.add_column(column, no_wrap=True)
        for margin in report["margins"]:
            style = "bold red" if margin["needed"] > margin["margin"] else ""
            table.add_row(*_margin(margin), style=style)
        console.print(table)


def markdown(report: dict[str, Any]) -> str:
    """Return the audit as Markdown tables."""
    lines = []
    for regime in report["regimes"]:
        found = rows(report, regime)
        if not found:
            continue
        lines += [f"### {regime} pairs", "", "| fault | heard as | sizes tried | caught from | by | WER itself |"]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        lines += [
            f"| `{row.fault}` | {row.hears} | {_sizes(row)} | {_together(row).plain} | {_by(row)} | {_wer(row)} |"
            for row in found
        ]
        lines.append("")
    if report["alarms"]:
        lines += ["### False alarms", "", "| guard | pairs | failed | exact 95 % interval | could not tell |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        lines += [
            f"| `{alarms['guard']}` | {alarms['regime']} | {alarms['failed']} of {alarms['draws']} | "
            f"{alarms['interval'][0]:.1%} to {alarms['interval'][1]:.1%} | {alarms['undecided']} of {alarms['draws']} |"
            for alarms in report["alarms"]
        ]
        lines.append("")
    if report["margins"]:
        lines += ["### Margins", "", f"| {' | '.join(_MARGINS)} |", "| --- " * len(_MARGINS) + "|"]
        lines += [f"| {' | '.join(_margin(margin))} |" for margin in report["margins"]]
        lines.append("")
    return "\n".join(lines)


def as_html(report: dict[str, Any]) -> str:
    """Return the audit as one HTML page without scripts: shares caught, fault and size by guard."""
    parts = [_HEAD.format(title=html.escape(f"Audit of {report['task']}"))]
    for regime in report["regimes"]:
        mine = [trial for trial in report["trials"] if trial["regime"] == regime]
        guards = sorted({trial["guard"] for trial in mine})
        if not mine:
            continue
        parts.append(f"<h2>{html.escape(regime)} pairs</h2><table><tr><th>fault</th><th>size</th>")
        parts += [f"<th>{html.escape(guard)}</th>" for guard in guards]
        parts.append("<th>all</th></tr>")
        for fault in report["faults"]:
            for size in fault["sizes"]:
                parts.append(_html_row(report, fault, size, regime, guards))
        parts.append("</table>")
    parts.append(_html_alarms(report))
    return "".join(parts) + "</body></html>\n"


def _html_row(report: dict[str, Any], fault: dict[str, Any], size: float, regime: str, guards: list[str]) -> str:
    wanted = report["must_catch"].get(fault["name"]) == size
    where = (fault["name"], size, regime)
    said = {
        trial["guard"]: trial for trial in report["trials"] if (trial["fault"], trial["size"], trial["regime"]) == where
    }
    catch = next((c for c in report["catches"] if (c["fault"], c["size"], c["regime"]) == where), None)
    cells = [_cell(said.get(guard)) for guard in guards] + [_cell(catch)]
    mark = " *" if wanted else ""
    name = html.escape(fault["name"])
    return f"<tr><td>{name}</td><td>{size:g} {html.escape(fault['unit'])}{mark}</td>{''.join(cells)}</tr>"


def _cell(trial: dict[str, Any] | None) -> str:
    if trial is None:
        return "<td class=none></td>"
    share = trial["failed"] / trial["draws"]
    return f'<td style="background:hsl({120 * share:.0f},70%,80%)">{share:.0%}</td>'


def _html_alarms(report: dict[str, Any]) -> str:
    if not report["alarms"]:
        return ""
    rows = "".join(
        f"<tr><td>{html.escape(alarms['guard'])}</td><td>{html.escape(alarms['regime'])}</td>"
        f"<td>{alarms['failed']} of {alarms['draws']}</td>"
        f"<td>{alarms['interval'][0]:.1%} to {alarms['interval'][1]:.1%}</td><td>{alarms['undecided']}</td></tr>"
        for alarms in report["alarms"]
    )
    head = "<tr><th>guard</th><th>pairs</th><th>failed</th><th>95 % interval</th><th>could not tell</th></tr>"
    return f"<h2>False alarms on honest pairs</h2><table>{head}{rows}</table>"


def _sizes(row: Row) -> str:
    return " ".join(f"{size:g}" for size in row.sizes) + f" {row.unit}"


def _together(row: Row) -> Text:
    if row.together is None:
        return Text("not caught", style="bold red" if row.wanted is not None else "yellow")
    late = row.wanted is not None and row.sizes.index(row.together) > row.sizes.index(row.wanted)
    return Text(f"{row.together:g} {row.unit}", style="bold red" if late else "green")


def _by(row: Row) -> str:
    best = [guard for guard, size in row.by_guard.items() if size is not None and size == row.together]
    others = [f"{guard} {size:g}" for guard, size in row.by_guard.items() if size is not None and size != row.together]
    return ", ".join(best) + (f" ({', '.join(others)})" if others else "")


def _margin(margin: dict[str, Any]) -> list[str]:
    figures = [f"{margin[name]:.4g} {margin['unit']}" for name in ("margin", "median", "needed")]
    return [f"{margin['guard']}: {margin['figure']}", margin["regime"], *figures]


def _wer(row: Row) -> str:
    size = row.by_guard.get("wer")
    return f"from {size:g} {row.unit}" if size is not None else "nothing"


_MARGINS = ("figure", "pairs", "the suite's margin", "half of draws need", "99 % of draws need")
_HEAD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px sans-serif; margin: 2em; }} table {{ border-collapse: collapse; margin: 1em 0; }}
td, th {{ border: 1px solid #ccc; padding: 2px 6px; text-align: right; }} td:first-child {{ text-align: left; }}
.none {{ background: #eee; }}
</style></head><body><h1>{title}</h1>
<p>Share of draws in which a guard failed the candidate; grey where it was not asked, since it had heard nothing of a
larger size. A star marks the size that the task must catch.</p>
"""
