# SPDX-License-Identifier: Apache-2.0
"""Processor time, memory and a local Spark session, for every benchmark."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from process_tree import descendants, running_processes


def processor_seconds() -> float:
    """Return the processor time of this process and its descendants: the JVM, Python workers."""
    processes = running_processes()
    return sum(processes[pid].processor for pid in descendants(os.getpid(), processes))


def resident_mb() -> int:
    """Return the resident memory of this process, megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def largest_kb() -> int:
    """Return the peak memory of the largest Python worker of this process, kB."""
    largest = 0
    for one in descendants(os.getpid(), running_processes()) - {os.getpid()}:
        try:
            status = Path(f"/proc/{one}/status").read_text()
            command = Path(f"/proc/{one}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark" in command and b"java" not in command.split(b"\0")[0]:
            peak = next((line for line in status.splitlines() if line.startswith("VmHWM")), "0 0")
            largest = max(largest, int(peak.split()[1]))
    return largest


def seconds(run: Callable[[], object], rounds: int = 3) -> float:
    """Return the processor time of the fastest round, summed over all cores, seconds.

    Processor time, because other programs on the machine distort wall time.
    """
    best = float("inf")
    for _ in range(rounds):
        started = processor_seconds()
        run()
        best = min(best, processor_seconds() - started)
    return best


def local_spark(*lakes: str) -> Any:
    """Return a session on local[2] with the jars of the given lakes."""
    from changelane.spark import session

    spark = session("changelane benchmarks", master="local[2]", lakes=lakes or ("delta",))
    spark.sparkContext.setLogLevel("OFF")
    return spark
