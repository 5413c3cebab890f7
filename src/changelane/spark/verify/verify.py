# SPDX-License-Identifier: Apache-2.0
"""Verifies the tables of a pipeline whose source is a captured database."""

import time
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from changelane.capture.requested_tables import check_capture_log
from changelane.errors import ConfigError, UnknownNameError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.experimental_source import unavailable
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import separate_session
from changelane.spark.verify.comparison import Chunk
from changelane.spark.verify.databases import open_database
from changelane.spark.verify.lake_rows import lake_version
from changelane.spark.verify.report import (
    TableReport,
    VerificationReport,
)
from changelane.spark.verify.reporting import table_report
from changelane.spark.verify.source_database import (
    VerifiedTable,
)
from changelane.spark.verify.table_plan import Bound
from changelane.spark.verify.table_planning import UnverifiableError, verified_target
from changelane.spark.verify.table_verification import (
    MissingTableError,
    TableVerification,
    Verification,
    VerifyOptions,
)


def verify(
    pipeline: Pipeline,
    tables: Sequence[str] = (),
    *,
    spark: SparkSession,
    options: VerifyOptions = VerifyOptions(),  # noqa: B008 - frozen
    notify: Callable[[str], None] = lambda _: None,
) -> VerificationReport:
    """Compare the tables of a database with those of the lake; both may change meanwhile.

    Args:
        pipeline: A pipeline that captures a database into tables. Its capture and its runs must
            go on, because the comparison waits for them.
        tables: The names of tables at the source, in full or by their last parts; empty = all.
        spark: The session, with the table format of the pipeline.
        options: How tables are verified.
        notify: Called with the progress.

    Raises:
        ConfigError: The source is no captured database, the capture log has no first load of it,
            the server rejects the login or a statement, or the pipeline has no tables.
        UnknownNameError: There is no such table.
        UnreachableError: The server does not answer.
        ChangelaneError: The lake does not reach a position of the source in time.
    """
    source = captured_source(pipeline)
    check_capture_log(source)
    lake = lake_of(separate_session(spark), pipeline)
    with open_database(source) as database:
        verification = Verification(pipeline, source, database, lake, options, notify)
        reports = []
        for table in selected_tables(database.tables(), tables):
            report, _ = verify_table(verification, table)
            reports.append(report)
            notify(f"{report.table}: {report.outcome}")
    return VerificationReport(pipeline=pipeline.name, tables=tuple(reports))


def captured_source(pipeline: Pipeline) -> DatabaseSource:
    """Return the source of a pipeline.

    Raises:
        ConfigError: It is no captured database, or an experimental one.
    """
    source = pipeline.source
    if not isinstance(source, DatabaseSource):
        msg = f"verify compares captured databases, and the source is {source.type_name}"
        raise ConfigError(msg)
    if source.is_experimental:
        raise unavailable(
            source, "verify with the database", "compare its capture log (--replay FOLDER)"
        )
    if source.connect_url is not None:
        msg = "verify needs the positions of a capture log, and the source has connect_url: "
        raise ConfigError(msg + "compare the topics with the tables (--replay FOLDER)")
    return source


def selected_tables(captured: Sequence[VerifiedTable], names: Sequence[str]) -> list[VerifiedTable]:
    """Return the captured tables that are verified."""
    ids = {str(table.id): table for table in captured}
    selected: dict[str, VerifiedTable] = {}
    for name in names:
        matches = {text: ids[text] for text in ids if f".{text}".endswith(f".{name}")}
        if not matches:
            raise UnknownNameError("table", name, sorted(ids))
        selected |= matches
    return list((selected or ids).values())


def verify_table(
    verification: Verification,
    table: VerifiedTable,
    *,
    chunk: Chunk | None = None,
    bounds: tuple[Bound, ...] | None = None,
) -> tuple[TableReport, tuple[Bound, ...]]:
    """Verify one table; return its report and the ends of its chunks but the last one.

    Args:
        verification: What the verification of every table needs.
        table: The table.
        chunk: The only chunk to compare; ``None`` = all.
        bounds: The ends of the chunks; ``None`` = new ones.
    """
    name, start_s = str(table.id), time.monotonic()
    if table.refusal:
        return TableReport(table=name, outcome="not verified", reason=table.refusal), bounds or ()
    try:
        target = verified_target(verification.pipeline, table.id)
        table_verification = TableVerification(verification, table, target, bounds)
        version = lake_version(verification.pipeline, verification.lake, target.table)
        if version is not None:
            table_verification.plan_of(version)  # rejects the table before it waits for the lake
        comparison = table_verification.comparison(chunk)
        repairs = (
            table_verification.repair(comparison.differences)
            if verification.options.repairs and comparison.differences
            else {}
        )
    except MissingTableError as error:
        return _report_without_table(name, has_rows=error.has_rows), bounds or ()
    except UnverifiableError as error:
        return TableReport(table=name, outcome="not verified", reason=str(error)), bounds or ()
    report = table_report(
        name,
        table_verification.columns_plan,
        comparison,
        bounds=table_verification.bounds,
        position_text=table_verification.position_text,
        repairs=repairs,
        duration_s=time.monotonic() - start_s,
    )
    return report, table_verification.bounds


def _report_without_table(name: str, *, has_rows: bool) -> TableReport:
    """Return the result of a table that the lake lacks: no event has created it.

    Args:
        name: The table at the source.
        has_rows: Whether it has rows.
    """
    if has_rows:
        return TableReport(table=name, outcome="different", reason="the lake has no table of it")
    return TableReport(table=name, outcome="equal")
