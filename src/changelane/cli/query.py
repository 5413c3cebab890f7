# SPDX-License-Identifier: Apache-2.0
"""``changelane query``: an SQL query over the newest rows of a pipeline's tables."""

from collections import Counter
from collections.abc import Iterable, Sequence

import click
from rich.console import Console

from changelane.cli.pipeline_tables import open_session
from changelane.cli.terminal import Column, output_console, print_table
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError, MissingViewsError


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.argument("sql", metavar="SQL")
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="TABLE",
    help="Only views of this table, by its name at the source or its last part; repeatable.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=1000, show_default=True, help="Maximum of rows."
)
@click.option("--master", metavar="URL", help="Spark master URL; default: local[*].")
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def query(
    file: str, sql: str, *, tables: tuple[str, ...], limit: int, master: str | None, output: str
) -> None:
    """Run an SQL query over the views TABLE_latest of a pipeline's tables.

    A view shows the rows of its table and, with `merge: deferred`, the events that wait in the
    change log: the rows that the table has after its next merge. The command only reads; the
    pipeline may be running.

    \b
    changelane query shop.yaml "SELECT state, count(*) FROM orders_latest GROUP BY state"
    """  # noqa: D301 - click takes the character, not its name
    pipeline, spark = open_session(file, master)
    from changelane.spark.run.latest import create_latest_views

    try:
        if not create_latest_views(pipeline, tables, spark=spark):
            raise ConfigError("no tables yet: `changelane run` creates them")
    except MissingViewsError as error:
        click.echo(f"changelane: {error}", err=True)  # the query may not need these tables
    # a subquery must be a query: other statements fail
    query_text = sql.strip().removesuffix(";")
    rows = spark.sql(f"SELECT * FROM (\n{query_text}\n)").limit(limit + 1)  # noqa: S608 - the user's own
    if output == "json":
        if repeated_names := sorted(n for n, count in Counter(rows.columns).items() if count > 1):
            msg = f"several columns are called {repeated_names[0]}: name them with AS for JSON"
            raise ConfigError(msg)
        lines = rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect()
        for (line,) in lines[:limit]:
            click.echo(line.encode())
    else:
        names = rows.columns
        texts = rows.toDF(*(f"c{index}" for index in range(len(names))))
        lines = texts.select(*(texts[name].cast("string") for name in texts.columns)).collect()
        show(names, lines[:limit], output_console())
    if len(lines) > limit:
        click.echo(f"changelane: only the first {limit:,} rows are shown: --limit", err=True)


def show(names: Sequence[str], rows: Iterable[Iterable[str | None]], console: Console) -> None:
    """Print rows of texts; ``None`` is NULL."""
    columns = [Column(printable(name)) for name in names]
    cells = [["NULL" if cell is None else printable(cell) for cell in row] for row in rows]
    print_table(columns, cells, console)
