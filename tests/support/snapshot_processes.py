# SPDX-License-Identifier: Apache-2.0
"""Captures in child processes whose first load is read by readers, and their ends."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

from child_processes import descendants, is_running

from changelane.capture.snapshot.plan import SnapshotProgress
from changelane.capture.storage import LocalFolder


def progress_of(folder: Path) -> SnapshotProgress:
    return SnapshotProgress(LocalFolder(folder / "capture"))


def complete_numbers(folder: Path) -> set[int]:
    """The complete chunks of the snapshot that runs."""
    progress = progress_of(folder)
    plan = progress.plan()
    return set() if plan is None else progress.complete_numbers(plan)


def wait_for_chunks(folder: Path, process: "subprocess.Popen[bytes]", count: int) -> None:
    """Wait for a number of chunks, those of the tables that cannot continue among them."""
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        numbers = complete_numbers(folder)
        if numbers >= {0, 1} and len(numbers) >= count:
            return
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        time.sleep(0.02)
    raise AssertionError(f"there were no {count} complete chunks")


def wait_for_readers(process: "subprocess.Popen[bytes]", former: set[int]) -> None:
    """Wait until all former readers have ended, and others run."""
    deadline = time.monotonic() + 180
    former |= set(reader_pids(process))
    while time.monotonic() < deadline:
        if set(reader_pids(process)) - former:
            return
        time.sleep(0.02)
    raise AssertionError("no readers followed the former ones")


def reader_pids(process: "subprocess.Popen[bytes]") -> list[int]:
    pids = []
    for pid in descendants(process.pid):
        with contextlib.suppress(OSError):  # it has ended
            if b".reader_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                pids.append(pid)
    return pids


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a capture; its readers end with it."""
    readers = reader_pids(process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    deadline = time.monotonic() + 60
    while any(map(is_running, readers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_running, readers))
