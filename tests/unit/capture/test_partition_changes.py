# SPDX-License-Identifier: Apache-2.0
"""Partitions that were attached with rows, or are gone, since the last capture."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from changelane.capture.log_origin import LogOrigin, read_origin, write_origin
from changelane.capture.partition_changes import (
    partition_findings,
    record_partitions,
    with_known_partitions,
)
from changelane.capture.storage import LocalFolder

RECORDED = LogOrigin(
    server="shop",
    database="shop",
    identity="1",
    tables={"public.t": "10", "public.u": "20"},
    partitions={"public.t": {"11": "public.t_1", "12": "public.t_2"}},
)


def with_partitions(**partitions: dict[str, str]) -> LogOrigin:
    return replace(RECORDED, partitions={f"public.{name}": p for name, p in partitions.items()})


def attached(numbers: Collection[str]) -> set[str]:
    """The partitions from 100 on are attached ones with rows."""
    return {number for number in numbers if int(number) >= 100}


def defects(present: LogOrigin, recorded: LogOrigin = RECORDED) -> dict[str, Any]:
    return {finding.defect: finding for finding in partition_findings(recorded, present, attached)}


def test_created_partitions_are_no_finding_and_are_known_from_then_on() -> None:
    present = with_partitions(t={**RECORDED.partitions["public.t"], "13": "public.t_3"})
    assert defects(present) == {}
    assert with_known_partitions(RECORDED, present, attached) == present


def test_an_attached_partition_is_a_finding_until_its_rows_are_read(tmp_path: Path) -> None:
    present = with_partitions(t={"11": "public.t_1", "100": 'public."T"'})
    found = defects(present)
    assert found.keys() == {"attached_partition", "detached_partition"}
    assert 'attached with rows: public."T"' in found["attached_partition"].text()
    assert "changelane snapshot redo PIPELINE.yaml public.t" in found["attached_partition"].text()
    assert "detached or dropped: public.t_2" in found["detached_partition"].text()
    folder = LocalFolder(tmp_path)
    write_origin(folder, with_known_partitions(RECORDED, present, attached))
    recorded = read_origin(folder)
    assert recorded is not None
    assert defects(present, recorded).keys() == {"attached_partition"}
    record_partitions(folder, "public.t", present.partitions["public.t"])
    recorded = read_origin(folder)
    assert recorded is not None
    assert defects(present, recorded) == {}


def test_partitions_of_new_tables_and_of_earlier_versions_are_no_finding() -> None:
    present = with_partitions(t={"100": "public.t_9"}, u={"101": "public.u_9"})
    for recorded in (
        replace(RECORDED, partitions={}),
        replace(RECORDED, tables={"public.t": "9"}),
    ):
        assert defects(present, recorded) == {}
        assert with_known_partitions(recorded, present, attached) == present
