"""Pipelines killed with -9 at random times, and the expected content of their tables.

``scripts/soak.py`` repeats this for any length of time.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import lake_tables
import msgspec
from click.testing import CliRunner
from kafka_topics import Topics, spread
from pyspark.sql import SparkSession
from spark_settings import CHEAP
from test_crash import LOG as APPENDED
from test_crash import ONE, TWO, change, insert
from test_equality import CROWDS, rekeyed

from changelane.cli import main
from changelane.event import ChangeEvent, DataChange, Op
from changelane.position import PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.histories import history
from changelane.types import Integer

LOG: Final = TableId("killed", None, "log")
FEW: Final[list[list[ChangeEvent]]] = [
    [insert(ONE, 1, 1), insert(ONE, 2, 2), insert(TWO, 3, 1), insert(APPENDED, 4, 1)],
    [
        change(ONE, "u", 10, {"id": 1, "a": "new", "b": "new"}),
        change(ONE, "d", 11, None, {"id": 2}),
        change(TWO, "d", 12, None, {"id": 1}),
        insert(TWO, 13, 5),
        insert(APPENDED, 14, 2),
    ],
    [insert(ONE, 9, 2), insert(ONE, 20, 3), change(TWO, "d", 21, None, {"id": 5})],
]
"""Two tables with a key and one without, in few steps; ``test_crash`` and :func:`drawn` have more.

The third batch has an event that is older than the delete of its row.
"""
MAINTENANCE: Final = {
    "every_commits": 2,
    "small_files": 2,
    "merge_on_read_mb": 0,
    "snapshot_retention": "0 seconds",
}
LONGEST_S: Final = 20
"""The longest time from a run's fence to its kill."""


class Stream(NamedTuple):
    """A pipeline, and the events of its files."""

    file: Path
    lake: str
    batches: list[list[ChangeEvent]]


def write(folder: Path, table_format: str, batches: Sequence[Sequence[ChangeEvent]]) -> Stream:
    """Write a pipeline of files, one for each batch, each with one malformed line."""
    source = folder / "in"
    source.mkdir(parents=True)
    for number, batch in enumerate(batches):
        lines = [m.value for event in batch for m in lake_tables.CODEC.encode(event).messages]
        (source / f"{number}.jsonl").write_bytes(b"\n".join([*lines, b"{broken"]) + b"\n")
        os.utime(source / f"{number}.jsonl", (number, number))  # Spark reads the oldest first
    options = {"type": "files", "path": "in", "format": "native-json", "max_files_per_batch": 1}
    return _stream(folder, table_format, batches, options)


def write_topic(
    folder: Path, table_format: str, batches: Sequence[Sequence[ChangeEvent]], topics: Topics
) -> Stream:
    """Write a pipeline of a topic with the same messages, in about as many batches."""
    topic = topics.create(topics.name("killed"), 2)
    values = [
        value
        for batch in batches
        for value in (
            *(m.value for event in batch for m in lake_tables.CODEC.encode(event).messages),
            b"{broken",
        )
        if value is not None
    ]
    topics.send(topic, spread(values, 2))
    options = {
        "type": "kafka",
        "bootstrap_servers": topics.servers,
        "topics": topic,
        "format": "native-json",
        "max_offsets_per_trigger": len(values) // len(batches) + 1,
    }
    return _stream(folder, table_format, batches, options)


def _stream(
    folder: Path,
    table_format: str,
    batches: Sequence[Sequence[ChangeEvent]],
    source: Mapping[str, object],
) -> Stream:
    file = folder / "pipeline.yaml"
    settings: dict[str, object] = {"tables_without_key": "append", "spark_options": CHEAP}
    if table_format == "hudi":
        settings["spark_options"] = CHEAP | {"hoodie.bucket.index.num.buckets": "2"}
    else:
        settings["maintenance"] = MAINTENANCE
    file.write_text(
        "name: killed\n"
        f"source: {json.dumps(source)}\n"
        f"sink: {{type: {table_format}, path: {table_format}}}\n"
        f"options: {json.dumps(settings)}\n"
    )
    return Stream(file, str(folder / table_format), [list(batch) for batch in batches])


def drawn(chance: Random, files: int = 6, histories: int = 8) -> list[list[ChangeEvent]]:
    """Return random events of several tables with keys, and of one without, by file.

    A table is in half of the files, so that batches are short and some kills are between them.
    """
    batches: list[list[ChangeEvent]] = [[] for _ in range(files)]
    for name, kinds in CROWDS.items():
        table = TableId("killed", None, name)
        own_files = chance.sample(range(files), files // 2)
        for number in range(histories):
            profile, deliver = kinds[number % len(kinds)]
            events = history(chance, msgspec.structs.replace(profile, truncates=False))
            delivered = deliver(chance, events)
            places = sorted(chance.choice(own_files) for _ in delivered)
            for place, part in zip(places, delivered, strict=True):
                batches[place] += [rekeyed(chance, e, table, shift=number * 100) for e in part]
    schema = TableSchema((Column("id", Integer()),))
    for number in chance.sample(range(files), files // 2):
        for place in range(5):
            at = PostgresPosition(1000 * (number + 1) + place)
            batches[number].append(DataChange(Op("c"), LOG, None, None, {"id": 1}, schema, at))
    return batches


def killed_at(stream: Stream, points: Sequence[str]) -> None:
    """Run a pipeline once for each of these points of ``crash_points.py``; assert that it died."""
    program = str(Path(__file__).with_name("crash_points.py"))
    for point in points:
        done = subprocess.run(
            [sys.executable, program, point, str(stream.file)],
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        assert done.returncode == -signal.SIGKILL, f"{point}: {done.stderr[-2000:]}"


def finish(stream: Stream) -> None:
    """Run a pipeline to its end."""
    done = CliRunner().invoke(main, ["run", str(stream.file)])
    assert done.exit_code == 0, done.output


def killed_run(stream: Stream, chance: Random, *, longest_s: float | None = LONGEST_S) -> bool:
    """Run a pipeline and kill it at a random time; return whether it finished before.

    Args:
        stream: The pipeline.
        chance: For the time of the kill.
        longest_s: The longest time from the fence to the kill; ``None`` = do not kill.

    Raises:
        RuntimeError: The run failed without being killed.
    """
    began = time.time()
    with tempfile.TemporaryFile() as errors:
        run = subprocess.Popen(
            [sys.executable, "-m", "changelane", "run", str(stream.file), "--master", "local[2]"],
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        until = time.monotonic() + 120
        while not _wrote(stream, began) and run.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        try:
            run.wait(None if longest_s is None else chance.uniform(0, longest_s))
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            return False
        if run.returncode:
            errors.seek(0)
            raise RuntimeError(errors.read().decode()[-2000:])
    return True


def _wrote(stream: Stream, since: float) -> bool:
    """Return whether a run has written its fence, which is the first thing it writes."""
    try:
        files = (Path(stream.lake) / "_changelane").rglob("*")
        return any(file.stat().st_mtime > since for file in files)
    except OSError:  # a file was deleted meanwhile
        return True


def differences(spark: SparkSession, stream: Stream) -> list[str]:
    """Return the tables that differ from the oracle."""
    tables = lake_tables.oracle(stream.batches)
    differing = []
    for name in {e.table for batch in stream.batches for e in batch if isinstance(e, DataChange)}:
        if name.name == "log":
            if lake_tables.table_of(spark, stream.lake, name).count() != len(tables.rows(name)):
                differing.append(str(name))
        elif lake_tables.read(spark, stream.lake, name, ("id",)) != lake_tables.remembered(
            tables, name
        ):
            differing.append(str(name))
    expected = [one.code for one in tables.quarantine] + ["malformed_json"] * len(stream.batches)
    quarantine = lake_tables.table_of(spark, stream.lake, "_changelane/quarantine").collect()
    if sorted(row["code"] for row in quarantine) != sorted(expected):
        differing.append("quarantine")
    return differing
