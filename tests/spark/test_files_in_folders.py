# SPDX-License-Identifier: Apache-2.0
"""Folders over the days: files that come late, grow, cannot be read, or lead elsewhere."""

import gzip
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from changelane.cli import main
from changelane.pipeline.config import Pipeline, load
from changelane.pipeline.files_source import FilesSource
from changelane.spark.rows.builder import row_builder
from changelane.spark.run.query import RunError
from changelane.spark.run.tables import RunReport, run
from changelane.spark.sources import file_listing, file_tasks, files
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.file_reader import Piece
from changelane.spark.state.file_log import FileLog

PIPELINE: Final = """
name: folder
source: {type: files, path: in, format: native-json}
sink: {type: delta, path: lake}
options: {tables_without_key: append, maintenance: off}
"""
DAYS_S: Final = 24 * 3600


def lines(*numbers: int) -> bytes:
    """Return rows of a table without a key: a line that is read twice is seen."""
    told: list[bytes] = []
    for number in numbers:
        one: dict[str, Any] = {"op": "c", "table": {"name": "log"}, "after": {"id": number}}
        one |= {"schema": [{"name": "id", "type": "int64"}]}
        told.append(
            json.dumps(one | {"position": {"domain": "sequence", "value": number}}).encode()
        )
    return b"\n".join(told) + b"\n"


def written(folder: Path) -> Pipeline:
    (folder / "in").mkdir()
    (folder / "folder.yaml").write_text(PIPELINE)
    return load(folder / "folder.yaml")


def ids(spark: SparkSession, folder: Path) -> list[int]:
    found = spark.read.format("delta").load(str(folder / "lake/tables/log"))
    return sorted(row["id"] for row in found.collect())


def quarantine(folder: Path, *words: str, code: int = 0) -> str:
    command, *more = words
    done = CliRunner().invoke(main, ["quarantine", command, f"{folder}/folder.yaml", *more])
    assert done.exit_code == code, done.output + repr(done.exception)
    return done.stdout


def test_late_files_are_read_grown_ones_told_and_cut_ones_wait_until_they_are_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = written(tmp_path)
    source, outside = tmp_path / "in", tmp_path / "outside.jsonl"
    whole = gzip.compress(lines(3, 4))
    outside.write_bytes(lines(90))
    (source / "a.jsonl").write_bytes(lines(1, 2))
    (source / "cut.jsonl.gz").write_bytes(whole[:-9])
    (source / "none.jsonl.gz").write_bytes(b"not compressed")
    (source / "link.jsonl").symlink_to(outside)
    said: list[str] = []
    ran: Callable[[], RunReport] = partial(run, spark, pipeline, notify=said.append)

    first = ran()
    # the cut file has whole lines before the cut: none of them is applied
    assert ids(spark, tmp_path) == [1, 2]
    assert first.quarantined == {"corrupt_compression": 2}
    assert len(first.batches[0].files) == 3
    (note,) = said
    assert "link.jsonl is skipped" in note
    assert "follow_links: true" in note

    # `cp -p` of a file that is older than everything; Spark forgets them after 7 days
    (source / "late.jsonl").write_bytes(lines(5))
    os.utime(source / "late.jsonl", (100 * DAYS_S, 100 * DAYS_S))
    with (source / "a.jsonl").open("ab") as file:
        file.write(lines(91))
    (source / "cut.jsonl.gz").write_bytes(whole)
    said.clear()
    second = ran()
    assert ids(spark, tmp_path) == [1, 2, 5]
    assert [Path(name).name for name in second.changed] == ["a.jsonl", "cut.jsonl.gz"]
    assert len([note for note in said if "changed after it was read" in note]) == 2

    (shown, other) = map(json.loads, quarantine(tmp_path, "show", "--output", "json").splitlines())
    if not shown["file"].endswith("/cut.jsonl.gz"):
        shown, other = other, shown
    assert (shown["code"], shown["file"]) == ("corrupt_compression", f"{source}/cut.jsonl.gz")
    assert "value" not in shown
    mended = tmp_path / "mended.jsonl"
    mended.write_text(json.dumps(shown | {"value": "{}"}))
    done = CliRunner().invoke(
        main, ["quarantine", "replay", str(tmp_path / "folder.yaml"), "--repaired", str(mended)]
    )
    assert done.exit_code == 2
    assert "whole file" in done.stderr
    told = json.loads(quarantine(tmp_path, "replay", "--output", "json", code=1))
    assert (told[0]["entries"], told[0]["events"]) == (2, 2)
    assert told[0]["quarantined"] == {"corrupt_compression": 1}  # it is still none
    assert ids(spark, tmp_path) == [1, 2, 3, 4, 5]
    (source / "none.jsonl.gz").write_bytes(gzip.compress(lines(6)))
    quarantine(tmp_path, "replay")
    assert ids(spark, tmp_path) == [1, 2, 3, 4, 5, 6]
    assert "no entry is pending" in quarantine(tmp_path, "show")


def test_a_batch_that_died_and_a_checkpoint_of_sparks_own_source_go_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, source = written(tmp_path), tmp_path / "in"
    (source / "before é 1.jsonl").write_bytes(lines(90))
    told = spark.readStream.text(str(source)).writeStream.foreachBatch(lambda *_: None)
    told = told.option("checkpointLocation", pipeline.checkpoint).trigger(availableNow=True)
    told.start().awaitTermination()

    (source / "a.jsonl").write_bytes(lines(1, 2))
    with monkeypatch.context() as patch:
        patch.setattr(FileLog, "complete_batch", killed)
        with pytest.raises(RunError, match="killed"):
            run(spark, pipeline)
    assert ids(spark, tmp_path) == [1, 2]
    with (source / "a.jsonl").open("ab") as file:
        file.write(lines(91))
    (source / "b.jsonl").write_bytes(lines(3))
    report = run(spark, pipeline)
    # all of batch 1 was committed before the run died: it is not read again
    counts = [(batch.batch, batch.events, batch.finished_before) for batch in report.batches]
    assert counts == [(1, 0, 1), (2, 1, 0)]
    assert ids(spark, tmp_path) == [1, 2, 3]
    assert run(spark, pipeline).batches == []


def killed(_: object) -> None:
    raise RuntimeError("killed")


def test_what_hadoop_reads_is_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path).source
    assert isinstance(source, FilesSource)
    for module in (file_listing, file_tasks, files):
        monkeypatch.setattr(module, "is_local", lambda _: False)
    whole = gzip.compress(lines(*range(3, 2000)))
    told = {
        "a.jsonl": lines(1),
        "deep/odd {b}[c]*%20é.jsonl": b"\xef\xbb\xbf" + lines(2).rstrip(),
        "b.jsonl.gz": whole,
        "cut.jsonl.gz": whole[:-9],
        "no ending": lines(2000),
        "empty.jsonl": b"",
        "empty.parquet": b"",
        ".hidden.jsonl": lines(90),
    }
    (tmp_path / "in/deep").mkdir()
    for name, data in told.items():
        (tmp_path / "in" / name).write_bytes(data)
    source = FilesSource(path=source.path, format="native-json", glob="*")
    root = file_listing.root_of(spark, source)._replace(is_local=False)
    listed = file_listing.list_folder(spark, source, root).files
    inside = {f"{source.path}/{name}": len(data) for name, data in told.items() if name[0] != "."}
    assert {one.path: one.size for one in listed} == inside
    assert all(one.time_ms > 1_700_000_000_000 for one in listed)

    pieces = file_tasks.pieces_of(listed, root, {}, follow_links=False)
    make = partial(row_builder, "native-json", {})
    rows = file_tasks.file_rows(spark, source, pieces, make, None).collect()
    found = sorted(json.loads(row["after"])["id"] for row in rows if row["kind"] == "data")
    assert found == list(range(1, 2001))
    assert sorted((row["code"], row["topic"]) for row in rows if row["kind"] == "error") == [
        ("corrupt_compression", "cut.jsonl.gz"),
        ("malformed_file", "empty.parquet"),
    ]
    gz = Piece(f"{source.path}/b.jsonl.gz", "b", len(whole))
    assert file_tasks.read_first_lines(spark, source, gz, 2) == lines(3, 4).splitlines()


@pytest.mark.parametrize("clean", ["delete", "archive"])
def test_what_nobody_has_read_and_what_is_archived_stay_when_files_are_cleaned_up(
    spark: SparkSession, tmp_path: Path, clean: str
) -> None:
    folder, archive = tmp_path / "in", tmp_path / "archive"
    folder.mkdir()
    for name in ("read", "grown", "replaced", "again"):
        (folder / name).write_bytes(lines(1))
        os.utime(folder / name, (DAYS_S, DAYS_S))
    options = {"cleanSource": clean, "sourceArchiveDir": str(archive)}
    source = FilesSource(path=str(folder), format="native-json", glob="*", spark_options=options)
    said: list[str] = []
    checkpoint = Checkpoint(spark, str(tmp_path / "checkpoint"))
    one = files.FilesInput(spark, source, checkpoint, said.append)
    batch = tuple(one.unread_files())
    with (folder / "grown").open("ab") as file:
        file.write(lines(2))
    (folder / "replaced").write_bytes(lines(2))
    archived = archive / str(folder)[1:] / "again"
    archived.parent.mkdir(parents=True)
    archived.write_bytes(lines(9))
    one.clean(batch)
    kept = ["again", "grown", "replaced"] if clean == "archive" else ["grown", "replaced"]
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == kept
    assert archived.read_bytes() == lines(9)
    assert [path.rpartition("/")[2] for path in one.changed] == ["grown", "replaced"]
    assert sum("changed after it was read" in note for note in said) == 2
