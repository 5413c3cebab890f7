# SPDX-License-Identifier: Apache-2.0
"""Runs the processes of snapshot readers."""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from changelane.capture.engine import OUT_OF_MEMORY
from changelane.capture.snapshot.reader_config import (
    ReaderConfig,
    ReaderEnd,
    decode_reader_end,
    encode_reader_config,
)

Process = subprocess.Popen[bytes]


class LocalReaders:
    """Readers on this machine, which another thread can stop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[Process] = []
        self._is_stopped = False

    def read_chunks(self, configs: Sequence[ReaderConfig]) -> list[ReaderEnd]:
        """Run all readers at once; return how they ended."""
        with self._lock:
            self._processes.clear()
        lines = [encode_reader_config(config) for config in configs]
        with ThreadPoolExecutor(len(lines)) as pool:
            try:
                return list(pool.map(lambda line: run_reader(line, self._add), lines))
            except BaseException:
                self.stop()  # the pool waits for its readers
                raise

    def stop(self) -> None:
        """End the readers, and those that start later; chunks that are complete stay."""
        with self._lock:
            self._is_stopped = True
        self.kill()

    def kill(self) -> None:
        """End the readers that run."""
        with self._lock:
            for process in self._processes:
                process.kill()

    def _add(self, process: Process) -> None:
        with self._lock:
            self._processes.append(process)
            if self._is_stopped:
                process.kill()


def run_reader(line: bytes, on_start: Callable[[Process], None] = lambda _: None) -> ReaderEnd:
    """Run a reader; return how it ended.

    The reader ends with this process.

    Args:
        line: Its configuration, as ``encode_reader_config`` returns it.
        on_start: Gets the process.
    """
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-m", "changelane.capture.snapshot.reader_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        env=environment,
    ) as process:
        assert process.stdin is not None  # noqa: S101 - they are pipes
        assert process.stdout is not None  # noqa: S101
        on_start(process)
        with contextlib.suppress(BrokenPipeError):  # a reader that ended at once
            process.stdin.write(line)  # it stays open: its end is the end of the reader
        lines = process.stdout.read().splitlines()
    end = decode_reader_end(lines[-1]) if lines else None
    if end is None and process.returncode == OUT_OF_MEMORY:
        return ReaderEnd(
            "the JVM of a snapshot reader ran out of memory: increase the option memory"
        )
    return end or ReaderEnd("a reader of the snapshot was killed", is_retriable=True)
