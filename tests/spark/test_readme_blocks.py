# SPDX-License-Identifier: Apache-2.0
"""The README's blocks run as they are printed, in their order, in a fresh copy of the checkout.

Shell blocks run in one shell, YAML blocks become the files that the text before them names, and a
text block is what the block before it prints (a line ``...`` stands for any lines). The environment
is a link to the one that runs the tests. ``make demo`` and ``make test`` are left out by name: CI
runs them. Python blocks that start Spark are run by ``test_readme.py``.
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {"make demo", "make test"}
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`([\w-]+\.yaml)`:?\s*\Z")
PORT = re.compile(r"--port (\d+)")
MARK = "== block "
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SPARK = """\
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.sql.adaptive.enabled false
spark.sql.shuffle.partitions 2
spark.ui.enabled false
"""
"""Settings for few rows; ``tests/spark/spark_settings.py`` has the reasons."""


class Block(NamedTuple):
    """A fenced block: its language, its text, and the words before it."""

    kind: str
    text: str
    before: str


def blocks_of(page: str) -> Iterator[Block]:
    end = 0
    for found in BLOCK.finditer(page):
        yield Block(found[1], found[2], page[end : found.start()])
        end = found.end()


def script_of(blocks: list[Block]) -> str:
    """One shell script of all blocks; it prints a line before the output of each."""
    lines = ["set -euo pipefail"]
    for number, block in enumerate(blocks):
        lines.append(f"echo '{MARK}{number}'")
        if block.kind == "sh":
            commands = block.text.splitlines()
            lines += [line for line in commands if line.partition("#")[0].strip() not in LEFT_OUT]
        elif block.kind == "yaml":
            named = FILE.search(block.before.rstrip("\n"))
            assert named, f"the text before a YAML block names no file:\n{block.text}"
            lines.append(f"cat > {named[1]} <<'END OF FILE'\n{block.text}END OF FILE")
        elif block.kind == "python" and "spark" not in block.text:
            lines.append(f"python - <<'END OF FILE'\n{block.text}END OF FILE")
        else:
            assert block.kind in {"text", "python"}, block
    return "\n".join([*lines, ""])


def is_shown(shown: str, printed: str) -> bool:
    """Say whether the lines of a text block are those of an output, in their order."""
    parts = re.split(r"^\.\.\.\n", shown.strip() + "\n", flags=re.MULTILINE)
    printed = re.sub(r"[ \t]+$", "", printed, flags=re.MULTILINE)
    return re.search(".*?".join(map(re.escape, parts)), printed, re.DOTALL) is not None


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def end(group: int, ports: list[int]) -> None:
    """End a group of processes; `changelane dev broker` needs a moment to stop its broker."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        until = time.monotonic() + 30
        while any(map(is_taken, ports)) and time.monotonic() < until:
            time.sleep(0.1)
        os.killpg(group, signal.SIGKILL)


def files_of_the_checkout() -> list[str]:
    """The files that git knows or would add; where git does not answer, all that are not made."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    with contextlib.suppress(OSError):
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        if listed.returncode == 0:
            return [name for name in listed.stdout.decode().split("\0") if name]
    names = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    made = {"__pycache__", "spark-warehouse", "build", "dist"}
    return [
        str(name)
        for name in names
        if not made & set(name.parts) and (name.parts[0] == ".ci" or name.parts[0][0] != ".")
    ]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout, with a link to this environment."""
    folder = tmp_path / "changelane"
    for name in files_of_the_checkout():
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@pytest.mark.usefixtures("machine_locale")
def test_the_blocks_of_the_readme_run_as_printed(checkout: Path) -> None:
    page = (checkout / "README.md").read_text("utf-8")
    blocks = list(blocks_of(page))
    script = script_of(blocks)
    ports = list(map(int, PORT.findall(script)))
    if taken := [port for port in ports if is_taken(port)]:
        pytest.skip(f"ports that the README names are taken on this machine: {taken}")
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),  # the same files, with the jars that are fetched
        "JDK_JAVA_OPTIONS": JAVA,
        "SPARK_CONF_DIR": str(checkout.parent),
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "120",
    }
    (checkout.parent / "readme.sh").write_text(script, "utf-8")
    (checkout.parent / "spark-defaults.conf").write_text(SPARK, "utf-8")
    run = subprocess.Popen(
        ["bash", "../readme.sh"],
        cwd=checkout,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        encoding="utf-8",
    )
    try:
        output, errors = run.communicate(timeout=500)
    finally:
        end(run.pid, ports)
    assert run.returncode == 0, output + errors
    parts = (part.partition("\n") for part in output.split(MARK)[1:])
    printed = {int(number): text for number, _, text in parts}
    assert printed.keys() == set(range(len(blocks)))
    for number, block in enumerate(blocks):
        if block.kind == "text" and "spark" not in blocks[number - 1].text:
            before = printed[number - 1]
            assert is_shown(block.text, before), f"{block.text}\nis not what is printed:\n{before}"


def test_only_the_targets_that_ci_runs_are_left_out() -> None:
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    targets = re.findall(r"^make (\S+)$", ci, re.MULTILINE)
    for names, loop in re.findall(
        r"^for demo in (.+); do\n(.+?)^done", ci, re.MULTILINE | re.DOTALL
    ):
        assert '\n  make "$demo" ' in loop
        targets += names.split()
    assert {f"make {target}" for target in targets} >= LEFT_OUT
