# SPDX-License-Identifier: Apache-2.0
"""``changelane schema``: show or run the DDL that schema evolution needs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from changelane.cli.session import session_of
from changelane.conversion.terminal_text import printable
from changelane.pipeline.config import Pipeline, load, with_tables

if TYPE_CHECKING:
    from changelane.spark.evolution.suggest import SchemaPlan, SchemaPlanner


@click.group()
def schema() -> None:
    """Show or run the DDL statements with which a pipeline's tables follow their sources.

    With options.schema_changes strict or ignore, a run does not execute them. A table without a
    possible statement is shown with the reason.
    """


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--output", type=click.Choice(["text", "json"]), default="text"),
        click.option("--master", metavar="URL", help="Spark master URL; default: local[*]."),
        click.option("--table", metavar="NAME", help="Only this table, by its name at the source."),
        click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False)),
    ):
        command = option(command)
    return command


@schema.command()
@_options
def plan(file: str, table: str | None, master: str | None, output: str) -> None:
    """Show the statements without running them."""
    table_plans = _schema_plans(with_tables(load(file)), master).plans(table)
    _show(table_plans, output, "all tables follow their sources")


@schema.command()
@_options
def apply(file: str, table: str | None, master: str | None, output: str) -> None:
    """Run the statements that `plan` shows.

    A running pipeline stops with a message; start it again afterwards.
    """
    pipeline = with_tables(load(file))
    table_plans = _schema_plans(pipeline, master).apply(table)
    _show(table_plans, output, "nothing to do")


def _schema_plans(pipeline: Pipeline, master: str | None) -> "SchemaPlanner":
    spark = session_of(pipeline, master)
    from changelane.spark.evolution.evolution_state import evolution_of
    from changelane.spark.evolution.suggest import SchemaPlanner
    from changelane.spark.lake import lake_of
    from changelane.spark.lake.modes import modes_of

    options = pipeline.options
    tables = lake_of(spark, pipeline)
    return SchemaPlanner(
        spark, tables, evolution_of(options), modes_of(options), pipeline=pipeline.name
    )


def _show(table_plans: "list[SchemaPlan]", output: str, nothing: str) -> None:
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(table_plans)))
        return
    if not table_plans:
        click.echo(nothing)
    for table_plan in table_plans:
        click.echo(f"-- {printable(table_plan.table)}")
        if table_plan.halted:
            click.echo(f"-- halted: {printable(table_plan.halted)}")
        for statement in table_plan.statements:
            click.echo(f"{printable(statement)};")
