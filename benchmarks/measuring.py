# SPDX-License-Identifier: Apache-2.0
"""What every benchmark measures with."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


def processor_seconds() -> float:
    """Return the processor time of this process and all below it: the JVM, Python's workers."""
    told: dict[int, tuple[int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = path.read_text().rpartition(") ")[2].split()
        except OSError:  # gone since
            continue
        ticks = sum(map(int, parts[11:15]))  # of itself, and of children that have ended
        told[int(path.parent.name)] = int(parts[1]), ticks / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    while more := {one for one, (parent, _) in told.items() if parent in ours} - ours:
        ours |= more
    return sum(told[one][1] for one in ours if one in told)


def resident_mb() -> int:
    """Return how much memory this process holds, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


def largest_kb() -> int:
    """Return the largest memory that a Python worker below this process ever had, kB."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(") ")[2].split()[1])
        except OSError:  # gone since
            continue
    ours = {os.getpid()}
    while more := {one for one, parent in parents.items() if parent in ours} - ours:
        ours |= more
    found = 0
    for one in ours - {os.getpid()}:
        try:
            told = Path(f"/proc/{one}/status").read_text()
            command = Path(f"/proc/{one}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark" in command and b"java" not in command.split(b"\0")[0]:
            peak = next((line for line in told.splitlines() if line.startswith("VmHWM")), "0 0")
            found = max(found, int(peak.split()[1]))
    return found


def seconds(run: Callable[[], object], rounds: int = 3) -> float:
    """Return the seconds of processor time of the best of some rounds, over all cores.

    Not wall time: others use this machine, too.
    """
    best = float("inf")
    for _ in range(rounds):
        started = processor_seconds()
        run()
        best = min(best, processor_seconds() - started)
    return best


def local_spark(*lakes: str) -> Any:
    """Return local[2] with the jars of lakes."""
    from changelane.spark import session

    spark = session("changelane benchmarks", master="local[2]", lakes=lakes or ("delta",))
    spark.sparkContext.setLogLevel("OFF")
    return spark
