# SPDX-License-Identifier: Apache-2.0
"""The findings that all sources share: their checkpoint, their folders, and their sample."""

import os
from collections.abc import Callable, Collection, Generator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import Finding, ok, problem, warning
from changelane.pipeline.kafka_offsets import Offsets
from changelane.spark.lake.interface import file_system
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.sample import Samples
from changelane.spark.state.offset_log import (
    OffsetLog,
    OffsetLogEntry,
    check_new_start,
    lost_checkpoint_warning,
    offset_log_of,
)

MAX_SHOWN: Final = 20
"""The maximum number of topics that are listed and sampled."""


CheckLog = Callable[[Checkpoint, list[OffsetLogEntry]], None]


class SourceSample(NamedTuple):
    """The sample of a source.

    Attributes:
        messages: The messages.
        read_topics: The topics that the pipeline reads.
        broker_topics: All topics of the broker; ``None`` = the source is not Kafka.
        format_options: Options of the messages' format that the source defines.
    """

    messages: Samples
    read_topics: Collection[str] = ()
    broker_topics: Collection[str] | None = None
    format_options: dict[str, Any] = {}  # noqa: RUF012 - never changed


NO_SAMPLE: Final = SourceSample({})
SampleFindings = Generator[Finding, None, SourceSample | None]


def error_finding(about: str, error: ConfigError) -> Finding:
    """Return the problem of a source or sink that is wrong, or that does not answer."""
    is_unreachable = isinstance(error, UnreachableError)
    fix = (
        "check source.bootstrap_servers or sink.bootstrap_servers, the network, and "
        "security.protocol"
    )
    return problem(about, str(error), fix if is_unreachable else "", is_unreachable=is_unreachable)


def checkpoint_findings(
    spark: SparkSession,
    pipeline: Pipeline,
    check_log: CheckLog | None = None,
    *,
    has_offsets: bool = True,
) -> Generator[Finding, None, Offsets | None]:
    """Yield where a run would continue; return the offsets after the messages it read, if any.

    Args:
        spark: The session.
        pipeline: The pipeline.
        check_log: Checks that the source still has the messages after the checkpoint.
        has_offsets: Whether the checkpoint contains offsets, and not files.

    Raises:
        ConfigError: The source has deleted messages that were not read yet.
    """
    path = pipeline.checkpoint
    try:
        checkpoint = Checkpoint(spark, path)
        is_checkpoint_known = checkpoint.is_created
        if pipeline.sink.is_topics:
            log = OffsetLog(spark, pipeline.folder, pipeline.name).read()
        else:
            offset_log = offset_log_of(spark, pipeline, is_continued=is_checkpoint_known)
            offset_log.check_epoch(log := offset_log.read())
    except ConfigError as error:
        yield problem("checkpoint", str(error))
        return None
    except Py4JJavaError as error:
        error_class = error.java_exception.getClass().getSimpleName()
        yield problem("checkpoint", f"{path} cannot be read ({error_class})")
        return None
    if is_checkpoint_known:
        if check_log is not None:
            check_log(checkpoint, log)
        yield ok("checkpoint", f"a run continues at the offsets of {path}")
        return (checkpoint.position() or None) if has_offsets else None
    if log:
        try:
            if pipeline.sink.is_topics:
                check_new_start(pipeline)
                yield warning("checkpoint", f"{path} does not exist: messages would be sent again")
            else:
                yield warning("checkpoint", lost_checkpoint_warning(pipeline))
        except ConfigError as error:
            yield problem("checkpoint", str(error))
        return None
    yield from folder_findings(spark, "checkpoint", path)
    yield ok("checkpoint", f"a run would create {path}{pipeline.source.start_text}")
    return None


def folder_findings(spark: SparkSession, about: str, folder: str) -> Iterator[Finding]:
    """Yield a problem when a folder, or its nearest existing parent, is not writable."""
    try:
        system, path = file_system(spark, folder)
        while not system.exists(path) and path.getParent() is not None:
            path = path.getParent()
        is_folder = bool(system.getFileStatus(path).isDirectory())
    except Py4JJavaError as error:
        error_class = error.java_exception.getClass().getSimpleName()
        yield problem(about, f"{folder} cannot be reached ({error_class})", is_unreachable=True)
        return
    local_path = str(path.toUri().getPath())
    if not is_folder:
        yield problem(about, f"{local_path} is not a folder")
    elif str(system.getScheme()) == "file" and not os.access(Path(local_path), os.W_OK):
        fix = "choose another folder, or grant write permission"
        yield problem(about, f"{local_path} is not writable", fix)
