# SPDX-License-Identifier: Apache-2.0
"""The part of ``changelane check`` about a captured database; it writes nothing."""

from collections.abc import Iterator, Sequence
from typing import cast

from pyspark.sql import SparkSession

from changelane.capture import finding as capture_finding
from changelane.capture.connect_capture import ConnectCapture
from changelane.capture.database_findings import database_findings
from changelane.capture.products import captured_server_of
from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import folder_of
from changelane.errors import ConfigError, MissingExtraError, UnreachableError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import Finding, ok, problem
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.experimental_source import until_now_error
from changelane.spark.check import kafka, segments
from changelane.spark.check.findings import SampleFindings, checkpoint_findings


def source_findings(spark: SparkSession, pipeline: Pipeline) -> SampleFindings:
    """Yield the findings of the server and the capture log; return a sample of its records."""
    source = cast("DatabaseSource", pipeline.source)
    if source.connect_url is not None:
        yield from _connector_findings(source)
        return (yield from kafka.source_findings(spark, pipeline))
    if source.is_experimental and pipeline.options.trigger == "available_now":
        yield problem("source", str(until_now_error(source)))
    try:
        findings = database_findings(source)
    except UnreachableError as error:
        yield problem("source", str(error), is_unreachable=True)
        findings = None
    except (ConfigError, MissingExtraError) as error:
        yield problem("source", str(error))
        findings = None
    if findings is not None:
        yield from _server_findings(source, findings)
    if CaptureLog(folder_of(source.segments)).identity() is not None:
        return (yield from segments.source_findings(spark, pipeline))
    yield from checkpoint_findings(spark, pipeline, has_offsets=False)
    yield ok("source", f"a run would create the capture log {source.segments}")
    return None


def _server_findings(
    source: DatabaseSource, findings: Sequence[capture_finding.Finding]
) -> Iterator[Finding]:
    for finding in findings:
        text = f"{finding.problem}; {finding.consequence}"
        yield Finding(finding.state, finding.about, text, finding.fix)
    if not capture_finding.has_errors(findings) and not source.is_experimental:
        yield ok("source", f"{source.label} can be captured")


def _connector_findings(source: DatabaseSource) -> Iterator[Finding]:
    """Yield the findings of the server, and of its connector in Kafka Connect."""
    capture = ConnectCapture(source, captured_server_of(source))
    try:
        yield from _server_findings(source, capture.findings())
        connector_problem = capture.problem()
    except UnreachableError as error:
        yield problem("source", str(error), is_unreachable=True)
        return
    except (ConfigError, MissingExtraError) as error:
        yield problem("source", str(error))
        return
    about, cluster = f"connector {capture.name}", source.connect_url
    if connector_problem is None:
        yield ok(about, f"a run would register it in Kafka Connect at {cluster}")
    elif connector_problem:
        yield problem(about, connector_problem)
    else:
        yield ok(about, f"it runs in Kafka Connect at {cluster}")
