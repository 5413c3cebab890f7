# SPDX-License-Identifier: Apache-2.0
"""``changelane unpause``: let paused tables apply their pending events."""

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
    """Let paused tables apply their pending events, once the cause is corrected.

    A table that fails is paused: its events stay in the change log, and the other tables continue.
    After this command the pipeline's next batch, or its next run, merges these events first, in
    their order; none is lost or applied twice. A table that fails again is paused again.
    """
    _, lake = open_pipeline(file, master)
    from changelane.spark.rows.schema import table_id_of
    from changelane.spark.state.change_log import ChangeLog
    from changelane.spark.state.paused_tables import PausedTables

    paused_tables = PausedTables(ChangeLog(lake))
    paused = paused_tables.tables()
    names = {table_id: table_id_of(table_id) for table_id in paused}
    chosen = meant(names, tables) if tables else list(paused)
    if not chosen:
        click.echo("no table is paused")
        return
    paused_tables.record(
        *(msgspec.structs.replace(paused[place], state="unpaused") for place in chosen)
    )
    for name in sorted({str(names[place]) for place in chosen}):
        click.echo(f"{printable(name)}: its events are merged by the next batch or run")


def meant(paused: Mapping[str, TableId], tables: Iterable[str]) -> list[str]:
    """Return the paused tables that are named in full or by their last parts, as ``table_id``.

    Args:
        paused: Their names, by ``table_id``.
        tables: The names that are given.

    Raises:
        ConfigError: No table is paused, or a name is that of several.
        UnknownNameError: No paused table is called so; the nearest one is named.
    """
    places: dict[str, None] = {}
    for table_name in tables:
        if not paused:
            raise ConfigError(f"no table is paused, so none is called {table_name!r}")
        # of a name that changed hands there may be several tables: all of them are meant
        matches = [place for place, name in paused.items() if str(name) == table_name]
        matches = matches or [
            place for place, name in paused.items() if option_for_table({table_name: place}, name)
        ]
        several = sorted({str(paused[place]) for place in matches})
        if not matches:
            raise UnknownNameError("paused table", table_name, map(str, paused.values()))
        if len(several) > 1:
            msg = (
                f"{table_name!r} is the name of several paused tables: "
                f"give one of {', '.join(several)}"
            )
            raise ConfigError(msg)
        places.update(dict.fromkeys(matches))
    return list(places)
