# SPDX-License-Identifier: Apache-2.0
"""Runs the process of a snapshot reader."""

import os
import subprocess
import sys

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
        env=environment,
    ) as process:
        assert process.stdin is not None  # noqa: S101 - they are pipes
        assert process.stdout is not None  # noqa: S101
        process.stdin.write(line)
        process.stdin.flush()  # it stays open: its end is the end of the reader
        lines = process.stdout.read().splitlines()
    end = decode_reader_end(lines[-1]) if lines else None
    return end or ReaderEnd("a reader of the snapshot was killed", is_retriable=True)
