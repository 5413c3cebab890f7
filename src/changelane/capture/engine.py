# SPDX-License-Identifier: Apache-2.0
"""Starts, watches and stops the capture process."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final, Literal, NamedTuple, Self

import msgspec

from changelane.capture.engine_config import (
    EngineConfig,
    Failed,
    Heartbeat,
    Published,
    Started,
    Stopped,
    decode_status,
    encode_config,
)
from changelane.capture.engine_failures import first_line
from changelane.errors import ChangelaneError

STOP_S: Final = 90
"""The time that a process gets to stop in good order, seconds."""
_RESTART_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""The pauses before new processes while the database does not answer, seconds."""

EngineState = Literal["new", "starting", "running", "waiting", "failed", "stopped"]


class CaptureError(ChangelaneError):
    """The capture of a database failed."""


class CaptureStatus(msgspec.Struct, frozen=True):
    """The state of a capture.

    Attributes:
        state: ``starting``: the process connects; ``waiting``: the database does not answer, and a
            new process starts soon.
        published: The newest manifest; ``None`` = there is none yet.
        heartbeat: The newest sign of life of the database.
        reason: Why the capture failed or waits.
        restart_count: The number of processes that followed another one.
    """

    state: EngineState = "new"
    published: Published | None = None
    heartbeat: Heartbeat | None = None
    reason: str = ""
    restart_count: int = 0


class CaptureEngine:
    """The capture of one database in a child process.

    A process that loses its database is followed by another one, as long as it takes. All other
    failures end the capture.

    Args:
        config: The configuration.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._condition = threading.Condition()
        self._status = CaptureStatus()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: threading.Thread | None = None
        self._is_stopping = False
        self._is_restarting = False

    @property
    def status(self) -> CaptureStatus:
        """The state of the capture, and its newest manifest."""
        with self._condition:
            return self._status

    @property
    def pid(self) -> int | None:
        """The id of the present process; ``None`` = none runs."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def start(self) -> None:
        """Start the process; it connects in the background.

        Raises:
            CaptureError: It was started before.
        """
        if self._watcher is not None:
            raise CaptureError("a capture can be started once only")
        self._set(state="starting")
        self._watcher = threading.Thread(target=self._run, name="changelane-capture", daemon=True)
        self._watcher.start()

    def restart(self, config: EngineConfig, timeout_s: float = STOP_S) -> None:
        """Stop the process in good order; another one with a configuration follows it.

        Args:
            config: The configuration.
            timeout_s: The time after which the process is killed, seconds; nothing is lost then.
        """
        with self._condition:
            self.config = config
            process = self._process
            if process is None or process.poll() is not None:
                return  # the next process has it
            self._is_restarting = True
        _end(process, timeout_s)

    def wait_published(
        self, condition: int | Callable[[Published], bool], timeout_s: float
    ) -> Published:
        """Wait for a manifest.

        Args:
            condition: The number of the manifest, or a function that accepts it. Only the newest
                manifest is looked at.
            timeout_s: The longest time to wait, seconds.

        Raises:
            CaptureError: The capture failed, was stopped, or did not publish it in time.
        """

        def is_accepted(published: Published) -> bool:
            if isinstance(condition, int):
                return published.sequence >= condition
            return condition(published)

        deadline = time.monotonic() + timeout_s
        with self._condition:
            while True:
                status = self._status
                if status.published is not None and is_accepted(status.published):
                    return status.published
                if status.state in {"failed", "stopped"}:
                    raise CaptureError(status.reason or "the capture was stopped")
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0 or not self._condition.wait(remaining_s):
                    raise CaptureError(self._timeout_reason(timeout_s))

    def stop(self, timeout_s: float = STOP_S) -> CaptureStatus:
        """Stop the process in good order, and return the last state.

        Args:
            timeout_s: The time after which the process is killed, seconds; nothing is lost then.
        """
        with self._condition:
            self._is_stopping = True
            process = self._process
            self._condition.notify_all()
        if process is not None:
            _end(process, timeout_s)
        if self._watcher is not None:
            self._watcher.join(timeout_s)
        return self.status

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- the thread that watches the process

    def _run(self) -> None:
        """Run processes until one ends for good."""
        pauses_s = iter(_RESTART_S)
        pause_s = _RESTART_S[0]
        has_run = False
        while True:
            end = self._run_process()
            last_status = end.status
            with self._condition:
                is_restarting, self._is_restarting = self._is_restarting, False
            if is_restarting and not self._is_stopping:
                self._set(state="starting", reason="")
                continue
            has_run |= end.has_connected or end.is_killed
            if isinstance(last_status, Stopped) or self._is_stopping:
                self._set(state="stopped", reason="")
                return
            if not (last_status.is_retriable and has_run):
                self._set(state="failed", reason=last_status.reason)
                return
            pauses_s = iter(_RESTART_S) if end.has_connected else pauses_s
            pause_s = next(pauses_s, pause_s)
            self._set(state="waiting", reason=last_status.reason)
            with self._condition:
                self._condition.wait_for(lambda: self._is_stopping, pause_s)
                restart_count = self._status.restart_count + 1
            self._set(state="starting", restart_count=restart_count)

    def _run_process(self) -> "_ProcessEnd":
        """Run one process until its end."""
        with self._condition:
            if self._is_stopping:
                return _ProcessEnd(Stopped(None))
            try:
                process = self._process = self._open_process()
            except OSError as error:
                reason = f"the capture process does not start: {error.strerror}"
                return _ProcessEnd(Failed(reason, is_retriable=False))
        last_status: Failed | Stopped | None = None
        is_running = False
        for line in _stdout_of(process):
            match decode_status(line):
                case Started():
                    is_running = True
                    self._set(state="running", reason="")
                case Published() as published:
                    self._set(published=published)
                case Heartbeat() as heartbeat:
                    self._set(heartbeat=heartbeat)
                case Failed() | Stopped() as status:
                    last_status = status
                case None:
                    pass
        code = process.wait()
        _stdout_of(process).close()
        with contextlib.suppress(OSError):
            _stdin_of(process).close()
        return _ProcessEnd(last_status or self._death(code), is_running, code < 0)

    def _open_process(self) -> "subprocess.Popen[bytes]":
        work = Path(self.config.work)
        work.mkdir(parents=True, exist_ok=True)
        with self._error_file.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "changelane.capture.engine_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C in a terminal must reach the parent only
            )
        with contextlib.suppress(OSError):  # a process that ended at once says why
            stdin = _stdin_of(process)
            stdin.write(encode_config(self.config))
            stdin.flush()
        return process

    @property
    def _error_file(self) -> Path:
        return Path(self.config.work) / "engine-errors.log"

    def _death(self, code: int) -> Failed:
        """Return why a process ended without a last status."""
        lines = self._error_file.read_text("utf-8", "replace").splitlines()
        line = first_line(lines[-1], self.config.connector.secrets) if lines else ""
        if code == OUT_OF_MEMORY and "OutOfMemoryError" in "\n".join(lines):
            reason = "the JVM of the capture ran out of memory: increase the option memory"
            return Failed(reason, is_retriable=False)
        end = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        reason = f"the capture process ended {end}{': ' if line else ''}{line}"
        # somebody, or the system for lack of memory, killed it: the next one continues
        return Failed(reason, is_retriable=code < 0)

    def _set(self, **fields: object) -> None:
        with self._condition:
            self._status = msgspec.structs.replace(self._status, **fields)
            self._condition.notify_all()

    def _timeout_reason(self, timeout_s: float) -> str:
        status = self._status
        newest = "nothing" if status.published is None else f"manifest {status.published.sequence}"
        reason = f": {status.reason}" if status.reason else ""
        return (
            f"the capture published {newest}, but not what was awaited within {timeout_s:g} "
            f"seconds; it is {status.state}{reason}"
        )


class _ProcessEnd(NamedTuple):
    """The end of a process: its last status, whether it had connected, whether it was killed."""

    status: Failed | Stopped
    has_connected: bool = False
    is_killed: bool = False


def _end(process: "subprocess.Popen[bytes]", timeout_s: float) -> None:
    """End a process in good order, or kill it after a time."""
    with contextlib.suppress(OSError):
        _stdin_of(process).close()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()


OUT_OF_MEMORY: Final = 3
"""The exit code of a JVM with ``ExitOnOutOfMemoryError``."""


def _stdin_of(process: "subprocess.Popen[bytes]") -> IO[bytes]:
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    return process.stdin


def _stdout_of(process: "subprocess.Popen[bytes]") -> IO[bytes]:
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    return process.stdout
