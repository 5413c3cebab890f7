# SPDX-License-Identifier: Apache-2.0
"""The files part of ``changelane check``; it writes nothing."""

from typing import cast

from pyspark.sql import SparkSession

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import ok, problem, warning
from changelane.pipeline.files_source import FilesSource
from changelane.spark.check.findings import (
    MAX_SHOWN,
    SampleFindings,
    SourceSample,
    checkpoint_findings,
)
from changelane.spark.sources.sample import MAX_FILES, sample_files


def source_findings(spark: SparkSession, pipeline: Pipeline) -> SampleFindings:
    """Yield the findings of a folder and the checkpoint; return the sample of its messages."""
    found = yield from _folder_sample(spark, cast("FilesSource", pipeline.source))
    yield from checkpoint_findings(spark, pipeline, has_offsets=False)
    return found


def _folder_sample(spark: SparkSession, source: FilesSource) -> SampleFindings:
    try:
        sample, messages = sample_files(spark, source)
    except ConfigError as error:
        yield problem("source", str(error), "see source.path")
        return None
    if sample.outside:
        text = (
            f"{len(sample.outside)} symbolic links have targets outside of {source.path} and are "
        )
        text += f"skipped, such as {min(sample.outside)}"
        yield warning("source", text, "set source.follow_links: true, or copy the targets")
    for path, reason in sorted(sample.unlisted.items())[:MAX_SHOWN]:
        yield warning("source", f"{path} is skipped: {reason}")
    if not (count := len(sample.files)):
        text = f"no file in {source.path} matches {source.name_pattern}"
        yield warning("source", text, "check source.glob, or wait for files")
        return None
    suffix = f"; the first {MAX_FILES} of them are sampled" if count > MAX_FILES else ""
    yield ok("source", f"{count} files in {source.path}{suffix}")
    return SourceSample(messages)
