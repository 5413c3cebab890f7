# SPDX-License-Identifier: Apache-2.0
"""Repairs reach the capture log once, and only in the history of their positions."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from changelane.capture import publisher as publisher_module
from changelane.capture.connectors import ConnectorOptions
from changelane.capture.manifest import CapturedRecord, Manifest, Segment
from changelane.capture.publication import PublicationLimits, PublicationPlanner
from changelane.capture.publisher import LogPublisher
from changelane.capture.repairs import Repair, add_repair, read_repair, repair_names
from changelane.capture.segment_file import SegmentFile
from changelane.capture.segment_store import CaptureLog, SegmentWriter, segment_name
from changelane.capture.storage import LocalFolder

RECORDS = (CapturedRecord("t", "1", "a"), CapturedRecord("t", "2", None))
OPTIONS = ConnectorOptions(product="mariadb", name="s", host="h", database="d", user="u")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[SegmentWriter]:
    made = SegmentWriter(LocalFolder(tmp_path / "log"), tmp_path / "spool")
    yield made
    made.close()


def publisher_of(writer: SegmentWriter, folder: LocalFolder) -> LogPublisher:
    published = None if writer.newest is None else writer.newest.engine_offset
    planner = PublicationPlanner(published, limits=PublicationLimits(), now_s=0)
    return LogPublisher(writer, planner, OPTIONS, lambda _: None, folder)


def manifests(folder: LocalFolder) -> list[Manifest]:
    log = CaptureLog(folder)
    return [log.manifest(sequence) for sequence in log.sequences()]


def test_a_repair_is_published_and_deleted(
    writer: SegmentWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_REPAIRS_S", 0)
    folder = LocalFolder(tmp_path / "log")
    name = add_repair(folder, Repair(0, RECORDS))
    publisher = publisher_of(writer, folder)
    publisher.tick()
    assert repair_names(folder) == [name], "it waits for the first snapshot"
    writer.publish({"file": "b.1", "pos": 4})
    publisher = publisher_of(writer, folder)
    publisher.tick()
    assert repair_names(folder) == []
    assert read_repair(folder, name) is None
    first, repaired = manifests(folder)
    assert (repaired.first_offset, repaired.record_count) == (first.next_offset, 2)
    assert repaired.engine_offset == first.engine_offset
    publisher.tick()
    assert len(manifests(folder)) == 2


def test_repairs_of_another_history_and_damaged_ones_are_not_published(
    writer: SegmentWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_REPAIRS_S", 0)
    folder = LocalFolder(tmp_path / "log")
    add_repair(folder, Repair(0, RECORDS))
    folder.create("repairs/x.json", b"{}")
    folder.create("repairs/y.json", b'{"history": 0, "records": [{"topic": "\xff"}]}')
    writer.publish({"pos": 1})
    writer.begin_history()
    writer.publish({"pos": 2})
    publisher_of(writer, folder).tick()
    assert repair_names(folder) == []
    assert sum(manifest.record_count for manifest in manifests(folder)) == 0


def test_a_repair_of_another_user_does_not_stop_the_capture(
    writer: SegmentWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_REPAIRS_S", 0)
    folder = LocalFolder(tmp_path / "log")
    writer.publish({"pos": 1})
    (tmp_path / "log" / "repairs" / "x.json").mkdir(parents=True)  # cannot be read
    name = add_repair(folder, Repair(0, RECORDS))

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(publisher_module, "delete_repair", refuse)
    publisher = publisher_of(writer, folder)
    publisher.tick()
    publisher.tick()
    assert name in repair_names(folder)
    assert sum(manifest.record_count for manifest in manifests(folder)) == len(RECORDS), "once"


def spooled_segment(tmp_path: Path, folder: LocalFolder, name: str) -> Segment:
    file = SegmentFile(tmp_path / name, 0)
    file.write(b'{"topic":"t","partition":0,"key":"1","value":"a","headers":[]}')
    segment = file.close()
    folder.put(tmp_path / name, f"segments/{name}")
    return segment


def test_segments_of_a_repair_are_published_in_one_manifest_only(
    writer: SegmentWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "_REPAIRS_S", 0)
    folder = LocalFolder(tmp_path / "log")
    writer.append(RECORDS[0])
    newest = writer.publish({"pos": 1})
    segments = tuple(
        spooled_segment(tmp_path, folder, segment_name("5f0c-1", number)) for number in (1, 2)
    )
    repair = Repair(0, segments=segments, follows=newest.sequence)
    name = add_repair(folder, repair)
    publisher_of(writer, folder).tick()
    assert repair_names(folder) == []
    assert manifests(folder)[-1].segments == tuple(
        replace(segment, first_offset=offset) for offset, segment in enumerate(segments, 1)
    )
    # the capture process was killed before it deleted the file
    add_repair(folder, repair, name)
    writer = SegmentWriter(folder, tmp_path / "spool")
    publisher_of(writer, folder).tick()
    assert repair_names(folder) == []
    assert len(manifests(folder)) == 2
    # the next writer deletes only segments of its own kind that no manifest has
    spooled_segment(tmp_path, folder, segment_name(1, 9))
    waiting = spooled_segment(tmp_path, folder, segment_name("77aa-1", 1))
    writer.publish({"pos": 2})
    names = {segment_name(1, 1), waiting.name, *(segment.name for segment in segments)}
    assert set(folder.names("segments")) == names
    add_repair(folder, Repair(0, segments=(replace(waiting, name="lost"),), follows=2))
    publisher_of(writer, folder).tick()
    assert (repair_names(folder), len(manifests(folder))) == ([], 3)
