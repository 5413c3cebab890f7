# SPDX-License-Identifier: Apache-2.0
"""The heap, the garbage collector and the compiler of the JVM of a local run.

Spark's default is a heap of 1 GB, whatever the machine has. In a local run the driver's JVM also
runs all tasks, so a first load of some million rows needs more.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

MIN_HEAP_MB: Final = 1024
MAX_HEAP_MB: Final = 16 * 1024
"""Above it the JVM would need larger pointers, and pauses get longer."""
HEAP_SHARE: Final = 0.4
"""The share of the memory for the heap; Python's workers, Arrow and the page cache need some."""
_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_COLLECTOR: Final = re.compile(r"-XX:[+-]Use\w*GC\b")
_COMPILATION: Final = re.compile(
    r"-XX:(?:[+-]TieredCompilation|TieredStopAtLevel|Tier[234]|CompileThreshold)|-X(?:int|comp)\b"
)
_LATE_COMPILATION: Final = " ".join(
    f"-XX:Tier4{name}={value}"
    for name, value in (
        ("InvocationThreshold", 50_000),
        ("MinInvocationThreshold", 6_000),
        ("CompileThreshold", 150_000),
        ("BackEdgeThreshold", 400_000),
    )
)
"""Ten times the JVM's own thresholds of its optimizing compiler, C2.

A batch plans much and calls most methods of Spark a few thousand times. To compile them with C2
takes longer than they run afterwards: a quarter of the processor time of 300,000 messages.
"""
CODE_CACHE: Final = "-XX:ReservedCodeCacheSize=240m"
"""The JVM's default with C2. Without C2 it is 48 MB: a run of five tables fills it in 20 seconds.

The JVM then interprets all methods that it has not compiled.
"""
_NO_OPTIMIZATION: Final = f"-XX:TieredStopAtLevel=1 {CODE_CACHE}"
"""Without C2: 1,000 messages take two thirds of the processor time, millions a third more."""
_JVM_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
FEW_CORES: Final = 8
"""Up to so many cores the parallel collector takes less processor time than the default one."""


def default_heap(memory_bytes: int | None = None) -> str:
    """Return ``spark.driver.memory`` for a machine, such as ``9830m``.

    Args:
        memory_bytes: The memory of the machine; by default that of this one.
    """
    total = machine_memory() if memory_bytes is None else memory_bytes
    share = int(total * HEAP_SHARE) >> 20
    return f"{min(max(share, MIN_HEAP_MB), MAX_HEAP_MB)}m"


def machine_memory(limits: Iterable[Path] = _CGROUP_LIMITS) -> int:
    """Return the memory that this process may use, bytes: of the machine or of its container."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in limits:
        try:
            limit = int(path.read_text(encoding="ascii"))
        except (OSError, ValueError):  # not there, or "max"
            continue
        return min(physical, limit)
    return physical


def default_collector(user_options: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the option of the garbage collector, empty if the user chose one or has many cores.

    A JVM with two collectors does not start.

    Args:
        user_options: The options of the JVM that the user has set.
        environment: The environment variables; by default those of this process.
    """
    options = all_options(user_options, environment)
    if _COLLECTOR.search(options) or (os.cpu_count() or 1) > FEW_CORES:
        return ""
    return "-XX:+UseParallelGC"


def default_compilation(
    user_options: str, environment: Mapping[str, str] | None = None, *, is_short: bool = False
) -> str:
    """Return the options of the compiler, empty if the user chose some.

    Args:
        user_options: The options of the JVM that the user has set.
        environment: The environment variables; by default those of this process.
        is_short: Whether the JVM runs for about as long as it needs to start.
    """
    options = all_options(user_options, environment)
    if _COMPILATION.search(options):
        return ""
    return _NO_OPTIMIZATION if is_short else _LATE_COMPILATION


def all_options(user_options: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the JVM options of the user and of the environment variables that a JVM reads."""
    variables = os.environ if environment is None else environment
    return " ".join([user_options, *(variables.get(name, "") for name in _JVM_VARIABLES)])
