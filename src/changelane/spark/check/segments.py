# SPDX-License-Identifier: Apache-2.0
"""The part of ``changelane check`` about a capture log; it writes nothing."""

import time
from itertools import islice
from typing import cast

from pyspark.sql import SparkSession

from changelane.capture.manifest import Manifest
from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import folder_of
from changelane.conversion.message_files import read_record
from changelane.errors import ChangelaneError, DecodeError
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import ok, problem, warning
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.segments_source import SegmentsSource
from changelane.spark.check.findings import SampleFindings, SourceSample, checkpoint_findings
from changelane.spark.sources.sample import MAX_MESSAGES
from changelane.spark.sources.segments import TOPIC, record_lines


def source_findings(spark: SparkSession, pipeline: Pipeline) -> SampleFindings:
    """Yield the findings of the checkpoint and the capture log; return a sample of its records."""
    yield from checkpoint_findings(spark, pipeline, has_offsets=False)
    source = cast("SegmentsSource | DatabaseSource", pipeline.source).capture_log
    try:
        log = CaptureLog(folder_of(source.path))
        if log.identity() is None:
            fix = "start `changelane capture`, or correct source.path"
            yield problem("source", f"there is no capture log in {source.path}", fix)
            return None
        newest = log.newest()
        if newest is None:
            yield warning("source", f"the capture log {source.path} has no records yet")
            return None
        age_s = max(0, int(time.time() - newest.created_ms / 1000))
        text = f"{newest.next_offset:,} records; the newest manifest is {age_s:,} seconds old"
        yield ok("source", f"the capture log {source.path} has {text}")
        return SourceSample({TOPIC: _sample(log, newest)})
    except ChangelaneError as error:
        yield problem("source", str(error))
        return None


def _sample(log: CaptureLog, newest: Manifest) -> list[Message | DecodeError]:
    """Return the first records of the newest manifest that has some and still exists."""
    sequences = log.sequences()
    messages: list[Message | DecodeError] = []
    for sequence in reversed(sequences[-100:]):
        manifest = newest if sequence == newest.sequence else log.manifest(sequence)
        if not manifest.segments:
            continue
        for line in islice(record_lines(log.folder, manifest.segments[0]), MAX_MESSAGES):
            try:
                messages.append(read_record(line))
            except DecodeError as error:
                messages.append(error)
        break
    return messages
