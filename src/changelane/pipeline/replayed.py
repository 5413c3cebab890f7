# SPDX-License-Identifier: Apache-2.0
"""A pipeline that applies the same messages again, to tables of its own."""

from typing import Final

import msgspec

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline, with_tables
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.lake_sinks import DeltaSink, IcebergSink
from changelane.pipeline.segments_source import SegmentsSource

_SINKS: Final = {"delta": DeltaSink, "iceberg": IcebergSink}


def replayed(pipeline: Pipeline, folder: str) -> Pipeline:
    """Return a pipeline that reads the messages of another one from their start into a folder.

    Its tables have the format of the other's, in no catalog. Its own checkpoint is in the folder,
    so that its next run continues there.

    Args:
        pipeline: The other pipeline.
        folder: The folder, as an absolute path.

    Raises:
        ConfigError: The pipeline captures a database itself with which verify compares, has no
            tables, or did not begin with the oldest messages; or its table format has no
            comparison.
    """
    with_tables(pipeline)
    source = pipeline.source
    if isinstance(source, DatabaseSource) and source.is_capture_log and not source.is_experimental:
        msg = "the source is a database, with which verify compares: leave out --replay"
        raise ConfigError(msg)
    start = getattr(pipeline.source, "starting_offsets", "earliest")
    if start == "latest":
        msg = "with source.starting_offsets: latest nobody knows the first message: use --against"
        raise ConfigError(msg)
    if pipeline.table_format not in _SINKS:
        raise ConfigError(f"{pipeline.table_format} tables have no comparison: see docs/verify.md")
    options = msgspec.structs.replace(
        pipeline.options, checkpoint=None, trigger="available_now", max_interval=None
    )
    if isinstance(source, SegmentsSource | DatabaseSource) and source.is_capture_log:
        # the other pipeline has the same name, under which the log keeps what it has not applied
        source = msgspec.structs.replace(source.capture_log, keeps_segments=False)
    sink = _SINKS[pipeline.table_format](path=folder)
    if sink.folder == pipeline.folder.rstrip("/"):
        raise ConfigError("--replay needs a folder of its own, not that of the pipeline's tables")
    return msgspec.structs.replace(pipeline, source=source, sink=sink, options=options)
