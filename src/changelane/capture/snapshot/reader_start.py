# SPDX-License-Identifier: Apache-2.0
"""Runs the process of a snapshot reader."""

import contextlib
import os
import subprocess
import sys

from changelane.capture.engine import OUT_OF_MEMORY
from changelane.capture.snapshot.reader_config import ReaderEnd, decode_reader_end


def run_reader(line: bytes) -> ReaderEnd:
    """Run a reader; return how it ended.

    The reader ends with this process.

    Args:
        line: Its configuration, as ``encode_reader_config`` returns it.
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
        with contextlib.suppress(BrokenPipeError):  # a reader that ended at once
            process.stdin.write(line)  # it stays open: its end is the end of the reader
        lines = process.stdout.read().splitlines()
    end = decode_reader_end(lines[-1]) if lines else None
    if end is None and process.returncode == OUT_OF_MEMORY:
        return ReaderEnd(
            "the JVM of a snapshot reader ran out of memory: increase the option memory"
        )
    return end or ReaderEnd("a reader of the snapshot was killed", is_retriable=True)
