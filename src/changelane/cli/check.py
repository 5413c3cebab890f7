# SPDX-License-Identifier: Apache-2.0
"""``changelane check``: check a pipeline without writes."""

import sys
import tempfile
from collections.abc import Iterator

import click
import msgspec
from msgspec.structs import replace

from changelane.cli.session import session_of
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError, MissingExtraError
from changelane.pipeline.config import Pipeline, load
from changelane.pipeline.config_checks import (
    Finding,
    configuration_findings,
    exit_code,
    problem,
    warning,
)


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--master", metavar="URL", help="Spark master URL; default: local[*].")
@click.option("--offline", is_flag=True, help="Check only the file, no broker or folder.")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def check(file: str, *, master: str | None, offline: bool, output: str) -> None:
    """Check whether a pipeline would run, and show what it would do; nothing is written.

    The command checks the configuration, brokers, folders and tables. It decodes the first messages
    of each topic (at most 100, for at most half a minute) or the first lines of files like a run.

    Exit codes: 0 the pipeline would run, perhaps with warnings; 1 a service does not answer; 2 a
    problem.
    """
    findings: list[Finding] = []
    for finding in _findings(file, master, offline=offline):
        findings.append(finding)
        if output == "text":
            click.echo(printable(str(finding)))
    code = exit_code(findings)
    if output == "json":
        report = {"exit_code": code, "findings": findings}
        click.echo(msgspec.json.format(msgspec.json.encode(report)))
    sys.exit(code)


def _findings(file: str, master: str | None, *, offline: bool) -> Iterator[Finding]:
    try:
        pipeline = load(file)
    except ConfigError as error:
        yield problem("configuration", str(error))
        return
    findings = list(configuration_findings(pipeline))
    yield from findings
    if offline or exit_code(findings):
        return
    yield from _spark_findings(pipeline, master)


def _spark_findings(pipeline: Pipeline, master: str | None) -> Iterator[Finding]:
    options = pipeline.options
    with tempfile.TemporaryDirectory(prefix="changelane-check-") as folder:
        # Spark creates the folder of its catalog in the current folder at the first lookup
        settings = {"spark.sql.warehouse.dir": folder, **options.spark_options}
        checked_pipeline = replace(pipeline, options=replace(options, spark_options=settings))
        notes: list[str] = []
        try:
            spark = session_of(checked_pipeline, master, is_short=True, show_note=notes.append)
            from changelane.spark.check.pipeline import check as check_pipeline
        except (ConfigError, MissingExtraError) as error:
            yield problem("spark", str(error))
            return
        for note in notes:
            yield warning("spark", note)
        yield from check_pipeline(spark, pipeline)
