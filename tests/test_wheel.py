"""The wheel alone is enough: build it, install it into an environment of its own, run it in an empty folder."""

from __future__ import annotations

import json
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_carries_the_whole_tree_and_no_leftovers(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for part in (
        "conftest.py",
        "suites/speech.py",
        "suites/tiny_tts/task.toml",
        "suites/tiny_tts/engine/tinytts/__main__.py",
        "fixtures/texts.py",
        "guards/__init__.py",
        "audio_refs/texts/en/plain.txt",
    ):
        assert f"pytest_rsi/_tree/{part}" in names
    assert "pytest_rsi/judge.ini" in names
    assert any("/patches/" in name and name.endswith(".patch") for name in names)
    assert not [name for name in names if "__pycache__" in name or ".rsi/" in name or "tests/" in name]


@pytest.mark.slow
def test_pip_install_and_one_command_measure_a_real_server(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    own = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"], capture_output=True, text=True, check=True
    )
    # The dependencies of this environment are lent to the new one; the package itself comes from the wheel alone.
    Path(own.stdout.strip(), "lent.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel)], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    command = [python, "-m", "pytest", "--rsi-task", "tiny_tts", "-m", "guard", "--rsi-json", "result.json"]
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((empty / "result.json").read_text())
    assert result["complete"]
    assert result["verdicts"][0]["scope"] == "gate"
    assert set(result["items"].values()) == {"passed"}
