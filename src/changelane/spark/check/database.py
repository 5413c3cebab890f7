# SPDX-License-Identifier: Apache-2.0
"""The part of ``changelane check`` about a captured database; it writes nothing."""

from typing import cast

from pyspark.sql import SparkSession

from changelane.capture.database_capture import database_findings
from changelane.capture.finding import has_errors
from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import folder_of
from changelane.errors import ConfigError, MissingExtraError, UnreachableError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import Finding, ok, problem
from changelane.pipeline.database_source import DatabaseSource
from changelane.spark.check import segments
from changelane.spark.check.findings import SampleFindings, checkpoint_findings


def source_findings(spark: SparkSession, pipeline: Pipeline) -> SampleFindings:
    """Yield the findings of the server and the capture log; return a sample of its records."""
    source = cast("DatabaseSource", pipeline.source)
    try:
        findings = database_findings(source)
    except UnreachableError as error:
        yield problem("source", str(error), is_unreachable=True)
        findings = None
    except (ConfigError, MissingExtraError) as error:
        yield problem("source", str(error))
        findings = None
    if findings is not None:
        for finding in findings:
            text = f"{finding.problem}; {finding.consequence}"
            yield Finding(finding.state, finding.about, text, finding.fix)
        if not has_errors(findings):
            yield ok("source", f"{source.label} can be captured")
    if CaptureLog(folder_of(source.segments)).identity() is not None:
        return (yield from segments.source_findings(spark, pipeline))
    yield from checkpoint_findings(spark, pipeline, has_offsets=False)
    yield ok("source", f"a run would create the capture log {source.segments}")
    return None
