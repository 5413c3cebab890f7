# SPDX-License-Identifier: Apache-2.0
"""``changelane resume``: let parked tables take the events that wait for them."""

from collections.abc import Iterable, Mapping
from typing import Final

import click
import msgspec

from changelane.cli.pipeline_tables import open_pipeline
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError, UnknownNameError
from changelane.schema import TableId, option_for_table

_TABLE: Final = "Only this, by its name at the source or the last part of it; repeatable."


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--table", "tables", multiple=True, metavar="TABLE", help=_TABLE)
@click.option("--master", metavar="URL", help="Where Spark runs; local[*] when nothing says else.")
def resume(file: str, *, tables: tuple[str, ...], master: str | None) -> None:
    """Let parked tables take their events again, once the cause is mended.

    A table that fails is parked: its events wait in the change log, and the others go on. After
    this command the pipeline's next batch, or its next run, merges them first, in their order;
    nothing of them is lost or applied twice. A table that fails again is parked again.
    """
    _, lake = open_pipeline(file, master)
    from changelane.spark.rows.schema import table_id_of
    from changelane.spark.state.change_log import ChangeLog
    from changelane.spark.state.paused_tables import PausedTables

    parking = PausedTables(ChangeLog(lake))
    parked = parking.tables()
    names = {table_id: table_id_of(table_id) for table_id in parked}
    chosen = meant(names, tables) if tables else list(parked)
    if not chosen:
        click.echo("no table is parked")
        return
    parking.record(*(msgspec.structs.replace(parked[place], state="resumed") for place in chosen))
    for name in sorted({str(names[place]) for place in chosen}):
        click.echo(f"{printable(name)}: its events are merged by the next batch or run")


def meant(parked: Mapping[str, TableId], tables: Iterable[str]) -> list[str]:
    """Return the parked tables that are named in full or by their last parts, as ``table_id``.

    Args:
        parked: Their names, by ``table_id``.
        tables: The names that are given.

    Raises:
        ConfigError: No table is parked, or a name is that of several.
        UnknownNameError: No parked table is called so; the nearest one is named.
    """
    places: dict[str, None] = {}
    for table_name in tables:
        if not parked:
            raise ConfigError(f"no table is parked, so none is called {table_name!r}")
        # of a name that changed hands there may be several tables: all of them are meant
        matches = [place for place, name in parked.items() if str(name) == table_name]
        matches = matches or [
            place for place, name in parked.items() if option_for_table({table_name: place}, name)
        ]
        several = sorted({str(parked[place]) for place in matches})
        if not matches:
            raise UnknownNameError("parked table", table_name, map(str, parked.values()))
        if len(several) > 1:
            msg = (
                f"{table_name!r} is the name of several parked tables: "
                f"give one of {', '.join(several)}"
            )
            raise ConfigError(msg)
        places.update(dict.fromkeys(matches))
    return list(places)
