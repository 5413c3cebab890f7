# SPDX-License-Identifier: Apache-2.0
"""Processor time and peak memory of a command and of all processes that it starts.

Usage: process_tree.py REPORT COMMAND ...

The command runs as a child of this program, which adopts its orphans (Linux), so that the processor
time is that of every process until its end. The daemon of Spark's Python workers ignores their end,
so that theirs is sampled. REPORT gets the figures as JSON.
"""

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

_PARENT_DEATH_SIGNAL: Final = 1
_SUBREAPER: Final = 36
"""``PR_SET_PDEATHSIG`` and ``PR_SET_CHILD_SUBREAPER`` of ``prctl``."""
_INTERVAL_S: Final = 0.2
_ROLES: Final = ("jvm", "worker", "engine", "python", "all")


class Usage(NamedTuple):
    """The resources of a command.

    Attributes:
        wall: Time from start to end, seconds.
        processor: Processor time of all processes, seconds.
        peak_mb: Role (``jvm``, ``worker`` = Spark's Python workers, ``engine`` = the capture engine
            and the readers of a snapshot, which are Python with a JVM inside, ``python`` = other
            processes, ``all``) -> the maximum of the resident memory of these processes together,
            megabytes. Pages that processes share count several times.
        exit_code: The exit code of the command.
    """

    wall: float
    processor: float
    peak_mb: dict[str, int]
    exit_code: int


class Job:
    """A command that runs, with its figures.

    Args:
        command: The command.
        log: The file for its output.
        environment: More environment variables.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self._report = Path(tempfile.mkstemp(suffix=".json")[1])
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(self._report), *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether the command has not ended."""
        return self._process.poll() is None

    @property
    def processor_seconds(self) -> float:
        """The processor time until now, seconds."""
        processes = running_processes()
        members = descendants(self._process.pid, processes) - {self._process.pid}
        return sum(processes[pid].processor for pid in members)

    def check(self) -> None:
        """Check that the command runs.

        Raises:
            SystemExit: It has ended; the message has the end of its output.
        """
        if not self.is_running:
            raise SystemExit(f"the command ended too early:\n{self._tail()}")

    def wait(self) -> Usage:
        """Wait for the end of the command, which must be successful.

        Raises:
            SystemExit: The command failed; the message has the end of its output.
        """
        self._process.wait()
        usage = self._usage()
        if usage.exit_code != 0:
            raise SystemExit(f"the command failed ({usage.exit_code}):\n{self._tail()}")
        return usage

    def stop(self) -> Usage:
        """End the command; return its figures."""
        self._process.terminate()
        self._process.wait()
        return self._usage()

    def _usage(self) -> Usage:
        text = self._report.read_text("utf-8")
        self._report.unlink()
        return Usage(**json.loads(text))

    def _tail(self) -> str:
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-40:])


class Process(NamedTuple):
    """A process of this machine.

    Attributes:
        parent: The id of its parent.
        processor: Its processor time, and that of its children that have ended, seconds.
        resident: Its resident memory, bytes.
    """

    parent: int
    processor: float
    resident: int


def running_processes() -> dict[int, Process]:
    """Return all processes by their id."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    processes: dict[int, Process] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(") ")[2].split()
        except OSError:  # the process has ended
            continue
        used = sum(map(int, fields[11:15])) / ticks  # of itself, and of children that have ended
        processes[int(path.parent.name)] = Process(int(fields[1]), used, int(fields[21]) * page)
    return processes


def descendants(root: int, processes: Mapping[int, Process]) -> set[int]:
    """Return a process and all that descend from it."""
    members = {root} & set(processes)
    while (
        more := {one for one, process in processes.items() if process.parent in members} - members
    ):
        members |= more
    return members


def _role(command: bytes) -> str:
    if command.partition(b"\0")[0].endswith(b"java"):
        return "jvm"  # the name of the daemon of Python's workers is one of its arguments
    if b"changelane.capture.engine_process" in command or b"reader_process" in command:
        return "engine"
    return "worker" if b"pyspark.daemon" in command or b"python_daemon" in command else "python"


def command_of(pid: int) -> bytes:
    """Return the command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def resident_mb(members: Iterable[int]) -> dict[str, int]:
    """Return the resident memory of processes by role, megabytes."""
    commands = {pid: command for pid in members if (command := command_of(pid))}
    # after the commands: a child of a JVM that has become another program has memory of its own
    processes = running_processes()
    resident = dict.fromkeys(_ROLES, 0)
    for pid, command in commands.items():
        if pid not in processes:
            continue
        role = _role(command)
        # between fork and exec a child of a JVM seems to have all of its memory
        if role != "jvm" or commands.get(processes[pid].parent) != command:
            resident[role] += processes[pid].resident
            resident["all"] += processes[pid].resident
    return {role: size >> 20 for role, size in resident.items()}


def _is_child_ignored(parent: int) -> bool:
    """Whether a process ignores the end of its children: nobody gets their processor time."""
    try:
        status = Path(f"/proc/{parent}/status").read_text()
    except OSError:
        return False
    ignored = status.partition("SigIgn:")[2].split(maxsplit=1)[0]
    return bool(int(ignored, 16) >> (signal.SIGCHLD - 1) & 1)


class _Samples(threading.Thread):
    """Samples the processes below this one until it is stopped.

    Attributes:
        peak: Role -> the maximum of the resident memory, megabytes.
        unwaited: Process whose parent ignores its end -> its processor time when it was last seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = dict.fromkeys(_ROLES, 0)
        self.unwaited: dict[int, float] = {}
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(_INTERVAL_S):
            processes = running_processes()
            members = descendants(os.getpid(), processes) - {os.getpid()}
            for role, size in resident_mb(members).items():
                self.peak[role] = max(self.peak[role], size)
            parents = {processes[pid].parent for pid in members} & members
            ignoring = {parent for parent in parents if _is_child_ignored(parent)}
            for pid in members:
                if processes[pid].parent in ignoring:
                    self.unwaited[pid] = processes[pid].processor

    def stop(self) -> None:
        """Stop, and wait for the last sample."""
        self._is_over.set()
        self.join()


def measured(command: Sequence[str], output: IO[Any] | None = None) -> Usage:
    """Run a command as the only child of this process; return its figures."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)
    prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=output, start_new_session=True)

    def end(*_: object) -> None:
        os.killpg(process.pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    samples = _Samples()
    samples.start()
    exit_code, waited = -1, set[int]()
    with contextlib.suppress(ChildProcessError):  # all have ended
        while True:
            pid, status = os.wait()
            waited.add(pid)
            if pid == process.pid:
                exit_code = process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - started
    samples.stop()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    unwaited = sum(seconds for pid, seconds in samples.unwaited.items() if pid not in waited)
    return Usage(wall, used.ru_utime + used.ru_stime + unwaited, samples.peak, exit_code)


def main() -> int:
    """Run the command of the command line."""
    report, *command = sys.argv[1:]
    usage = measured(command)
    Path(report).write_text(json.dumps(usage._asdict()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
