"""The heap and the collector of a local run."""

import os
from pathlib import Path

import pytest

from changelane.spark.runtime import jvm_options
from changelane.spark.runtime.jvm_options import (
    default_collector,
    default_compilation,
    default_heap,
    machine_memory,
)

GB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "heap"),
    [(1 * GB, "1024m"), (8 * GB, "3276m"), (24 * GB, "9830m"), (512 * GB, "16384m")],
)
def test_the_heap_is_a_share_of_the_memory_within_limits(memory: int, heap: str) -> None:
    assert default_heap(memory) == heap


def test_a_container_with_less_memory_than_its_machine_counts(tmp_path: Path) -> None:
    limit, unlimited = tmp_path / "limit", tmp_path / "unlimited"
    limit.write_text(f"{GB}\n")
    unlimited.write_text("max\n")
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine_memory([tmp_path / "none", limit]) == GB
    assert machine_memory([unlimited]) == physical
    assert machine_memory([]) == physical


def test_few_cores_get_the_parallel_collector_unless_the_user_chose_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jvm_options.os, "cpu_count", lambda: 2)
    assert default_collector("", {}) == "-XX:+UseParallelGC"
    assert default_collector("-Da=b -XX:+UseZGC", {}) == ""
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"):
        assert default_collector("", {name: "-XX:+UseSerialGC"}) == ""
    monkeypatch.setattr(jvm_options.os, "cpu_count", lambda: 64)
    assert default_collector("", {}) == ""


def test_methods_are_optimized_late_unless_the_user_sets_a_threshold() -> None:
    assert "-XX:Tier4InvocationThreshold=50000" in default_compilation("-Da=b", {}).split()
    without_c2 = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    assert default_compilation("", {}, is_short=True) == without_c2
    for option in (
        "-XX:TieredStopAtLevel=1",
        "-XX:-TieredCompilation",
        "-XX:Tier4InvocationThreshold=5000",
        "-XX:CompileThresholdScaling=2",
        "-Xint",
    ):
        assert default_compilation(f"-Da=b {option}", {}, is_short=True) == ""
        assert default_compilation("", {"JAVA_TOOL_OPTIONS": option}) == ""
