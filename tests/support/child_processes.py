# SPDX-License-Identifier: Apache-2.0
"""Servers as child processes of a test: their user, their children, and their end with the test."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

END_S = 10


def as_user(name: str) -> list[str]:
    """The start of a command that runs as a user if we are root; servers refuse to run as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups"]


def descendants(pid: int) -> list[int]:
    """The children of a process, their children and so on."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            child = int(folder.name)
            children.setdefault(int(_fields_of(child)[1]), []).append(child)
    pids, pending = [], [pid]
    while pending:
        below = children.get(pending.pop(), [])
        pids += below
        pending += below
    return pids


def kill_processes(pids: Sequence[int]) -> None:
    """``kill -9`` processes by their ids, and wait for their end; those that ended are skipped."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + END_S
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.005)


def is_running(pid: int) -> bool:
    """Whether a process has not ended; a zombie has."""
    try:
        return _fields_of(pid)[0] != "Z"
    except OSError:
        return False


def _fields_of(pid: int) -> list[str]:
    """The state of a process, its parent and so on."""
    text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    return text.rpartition(")")[2].split()  # the name in parentheses may contain anything


class LifeLine:
    """Ends a process when ours ends, however it ends: a pipe that only our end keeps open."""

    def __init__(self, pid: int, number: signal.Signals) -> None:
        self._watcher = subprocess.Popen(
            ["sh", "-c", 'read line; [ "$line" ] || kill -"$0" "$1"', str(int(number)), str(pid)],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """Cut the line without an effect on the process, which has ended or will end otherwise."""
        with contextlib.suppress(BrokenPipeError):
            self._watcher.communicate(b"ended\n")
