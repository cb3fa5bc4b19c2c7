"""pytest's face of pytest-rsi: options, markers, and handing a run over to a supervisor process.

Imported by every pytest that has the plugin installed: nothing heavy at module level.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from pytest_rsi.options import OptionError, add_options, read_options

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARKERS = (
    "rsi_task(name): the suite of a task",
    "guard: an item that can veto a candidate; -m guard is the gate alone",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ``--rsi-*`` options."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Make the hooks known that suites, fixtures and guards implement."""
    from pytest_rsi import hookspec

    pluginmanager.add_hookspecs(hookspec)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin's own markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Register the markers of all guard families, once conftest files have brought them."""
    for families in session.config.hook.pytest_rsi_guards():
        for family in families:
            session.config.addinivalue_line("markers", family.signature)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Keep every conftest out of the front end: it only hands over, and a tree under test may have one."""
    known = early_config.known_args_namespace
    if getattr(known, "rsi_task", None) is not None and not _is_judge(early_config):
        known.noconftest = True


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Hand a run with ``--rsi-task`` over to a supervisor process and return its exit code."""
    if _is_judge(config) or config.option.help:
        return None
    try:
        options = read_options(config)
        if options.rsi_task is None:
            _need_task(config)
            return None
    except OptionError as error:
        raise pytest.UsageError(str(error)) from None
    if getattr(config.option, "numprocesses", None) or getattr(config.option, "tx", None):
        raise pytest.UsageError(
            "speed cannot be measured by workers side by side; leave out xdist's -n, --tx and --dist"
        )
    if config.args_source is config.ArgsSource.ARGS:
        raise pytest.UsageError(f"--rsi-task chooses what is collected; leave out {' '.join(config.args)}")
    from pytest_rsi.process import hardened_command

    job = {
        "options": dataclasses.asdict(options),
        "args": list(config.invocation_params.args),
        "folder": str(config.invocation_params.dir),
    }
    command = hardened_command("pytest_rsi.supervisor", json.dumps(job))
    # It keeps this environment, for agents that need their keys; the judges that it starts get a clean one.
    child = subprocess.Popen(command)
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:
            # The terminal has told the supervisor too: it stops its servers, then ends by itself.
            continue


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Refuse to run a suite's tests without a task: they would have nothing to measure."""
    yield
    suites = [item for item in session.items if item.get_closest_marker("rsi_task")]
    if suites and not _is_judge(session.config):
        raise pytest.UsageError(f"{suites[0].nodeid} measures a server; run it as pytest --rsi-task TASK")


def _need_task(config: pytest.Config) -> None:
    given = [name for name, value in vars(config.option).items() if name.startswith("rsi_") and value]
    given = [name for name in given if name not in ("rsi_until", "rsi_confidence")]
    if given:
        raise OptionError(f"--{given[0].replace('_', '-')} needs --rsi-task; add it")


def _is_judge(config: pytest.Config) -> bool:
    return any(type(plugin).__name__ == "JudgeSession" for plugin in config.pluginmanager.get_plugins())
