# SPDX-License-Identifier: Apache-2.0
"""``changelane unpause``: resume paused tables."""

from collections.abc import Iterable, Mapping
from typing import Final

import click
import msgspec

from changelane.cli.pipeline_tables import open_pipeline
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError, UnknownNameError
from changelane.schema import TableId, option_for_table

_TABLE: Final = "Only this table, by its name at the source or its last part; repeatable."


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--table", "tables", multiple=True, metavar="TABLE", help=_TABLE)
@click.option("--master", metavar="URL", help="Spark master URL; default: local[*].")
def unpause(file: str, *, tables: tuple[str, ...], master: str | None) -> None:
    """Resume paused tables, after the cause is corrected.

    A table that fails is paused: its events stay in the change log, and the other tables continue.
    After this command the next batch or run of the pipeline merges these events first, in their
    order; no event is lost or applied twice. A table that fails again is paused again.
    """
    pipeline, lake = open_pipeline(file, master)
    from changelane.spark.rows.schema import table_id_of
    from changelane.spark.state.change_log import ChangeLog
    from changelane.spark.state.paused_tables import PausedTables

    paused_tables = PausedTables(ChangeLog(lake, pipeline.name))
    paused = paused_tables.tables()
    names = {table_id: table_id_of(table_id) for table_id in paused}
    chosen = selected_tables(names, tables) if tables else list(paused)
    if not chosen:
        click.echo("no table is paused")
        return
    paused_tables.record(
        *(msgspec.structs.replace(paused[table_id], state="unpaused") for table_id in chosen)
    )
    for name in sorted({str(names[table_id]) for table_id in chosen}):
        click.echo(f"{printable(name)}: the next batch or run merges its events")


def selected_tables(paused: Mapping[str, TableId], tables: Iterable[str]) -> list[str]:
    """Return the ids of paused tables by their names, in full or by their last parts.

    Args:
        paused: The ids of paused tables -> their names.
        tables: The names of the command line.

    Raises:
        ConfigError: No table is paused, or several tables have the name.
        UnknownNameError: No paused table has the name; the error suggests the nearest one.
    """
    table_ids: dict[str, None] = {}
    for table_name in tables:
        if not paused:
            raise ConfigError(f"{table_name!r} is not paused: no table is")
        # a reused name may denote several tables: the result contains all of them
        matches = [table_id for table_id, name in paused.items() if str(name) == table_name]
        matches = matches or [
            table_id
            for table_id, name in paused.items()
            if option_for_table({table_name: table_id}, name)
        ]
        several = sorted({str(paused[table_id]) for table_id in matches})
        if not matches:
            raise UnknownNameError("paused table", table_name, map(str, paused.values()))
        if len(several) > 1:
            msg = (
                f"{table_name!r} is the name of several paused tables: "
                f"use one of {', '.join(several)}"
            )
            raise ConfigError(msg)
        table_ids.update(dict.fromkeys(matches))
    return list(table_ids)
