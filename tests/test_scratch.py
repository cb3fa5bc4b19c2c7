from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from pytest_rsi.scratch import scratch_folder, sweep

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

OWNER = (
    "import time\nfrom pytest_rsi.scratch import scratch_folder\n"
    "with scratch_folder() as folder:\n    print(folder, flush=True)\n    time.sleep(1000)\n"
)


def test_only_what_a_killed_owner_left_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "srv-of-somebody").mkdir()
    with (
        scratch_folder() as mine,
        subprocess.Popen(
            [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(tmp_path)}
        ) as owner,
    ):
        assert owner.stdout is not None
        theirs = owner.stdout.readline().strip()
        assert sweep() == []
        owner.kill()
        owner.wait()
        assert [str(folder) for folder in sweep()] == [theirs]
        assert mine.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["srv-of-somebody"]
