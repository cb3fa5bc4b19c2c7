from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_rsi.task import TaskError, check_requirements, load_task, read_task, task_names

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rsi.task import Task


@pytest.mark.parametrize("name", task_names())
def test_every_task_of_the_tree_is_valid_and_has_its_module(name: str) -> None:
    task = load_task(name)
    assert task.name == name
    assert task.module.is_file()


def test_unknown_task_lists_the_tasks() -> None:
    with pytest.raises(TaskError, match=r"unknown task 'cosyvoice9'; .* tiny_tts"):
        load_task("cosyvoice9")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('kind = "speech"', 'kind = "song"', "task.kind = 'song'"),
        ("concurrency = 2", "concurrency = 2\nrate_hz = 1.0", "exactly one of concurrency"),
        ("concurrency = 2\n", "", "exactly one of concurrency"),
        ("requests = 4", "requests = 0", "workload.0.requests = 0"),
        ("requests = 4", "requests = 4\nburst = 3", "workload.0.burst = 3"),
        ('source = "engine"', "", "exactly one of source"),
        ("start_timeout_s = 10.0", 'start_timeout_s = "soon"', "server.start_timeout_s = 'soon'"),
        ('name = "stub"', 'name = "other"', "expected the folder's name 'stub'"),
        ("[task]", "[task", "line 2"),
    ],
)
def test_a_faulty_file_is_named_with_key_and_value(stub: Task, old: str, new: str, complaint: str) -> None:
    path: Path = stub.folder / "task.toml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(TaskError) as caught:
        read_task(path)
    assert complaint in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_module_says_what_to_install(stub: Task) -> None:
    server = stub.server.model_copy(update={"requires": ("json", "no_such_module"), "extra": "tiny"})
    with pytest.raises(TaskError, match=r"no_such_module, not installed; pip install 'pytest-rsi\[tiny\]'"):
        check_requirements(stub.model_copy(update={"server": server}))
