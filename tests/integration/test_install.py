# SPDX-License-Identifier: Apache-2.0
"""``pip install`` of the checkout's wheel gives a command that works, as the README says."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CANAL = ROOT / "demo" / "input" / "shop-mysql.canal.jsonl"


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command outside of the checkout, without the checkout's own code."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` of an environment with the wheel, beside the libraries of this one."""
    folder = tmp_path_factory.mktemp("install")
    source = folder / "checkout"
    kept = ("src", "pyproject.toml", "README.md", "LICENSE")
    for name in kept:
        whole = ROOT / name
        if whole.is_dir():
            shutil.copytree(whole, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            source.mkdir(exist_ok=True)
            shutil.copyfile(whole, source / name)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source, cwd=folder)
    (wheel,) = folder.glob("changelane-*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    run(*pip, "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, cwd=folder)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin"


def test_the_wheel_has_the_command_and_all_that_it_needs(installed: Path, tmp_path: Path) -> None:
    told = run(
        installed / "python", "-c", "import changelane; print(changelane.__file__)", cwd=tmp_path
    )
    assert Path(told).is_relative_to(installed.parent)
    assert run(installed / "changelane", "--version", cwd=tmp_path).startswith("changelane 0")
    shown = run(installed / "changelane", "inspect", "--limit", "1", CANAL, cwd=tmp_path)
    assert "sales.orders" in shown
    options = ("-f", "canal-json", "-t", "debezium-json", "--on-loss", "warn")
    run(installed / "changelane", "convert", *options, CANAL, "out.jsonl", cwd=tmp_path)
    assert (tmp_path / "out.jsonl").stat().st_size > 1000


def test_the_wheel_has_the_files_that_are_no_modules(installed: Path) -> None:
    (package,) = installed.parent.glob("lib/python*/site-packages/changelane")
    own = {
        path.relative_to(ROOT / "src" / "changelane")
        for path in (ROOT / "src" / "changelane").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert own <= {path.relative_to(package) for path in package.rglob("*")}
