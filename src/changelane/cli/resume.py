# SPDX-License-Identifier: Apache-2.0
"""``changelane resume``: let parked tables take the events that wait for them."""

import click
import msgspec

from changelane.cli.lakes import open_pipeline
from changelane.cli.terminal import printable
from changelane.errors import UnknownNameError


@click.command()
@click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
@click.option("--table", "tables", multiple=True, metavar="TABLE", help="Only this; repeatable.")
@click.option("--master", metavar="URL", help="Where Spark runs; local[*] when nothing says else.")
def resume(file: str, *, tables: tuple[str, ...], master: str | None) -> None:
    """Let parked tables take their events again, once the cause is mended.

    A table that fails is parked: its events wait in the change log, and the others go on. After
    this command the pipeline's next batch, or its next run, merges them first, in their order;
    nothing of them is lost or applied twice. A table that fails again is parked again.
    """
    _, lake = open_pipeline(file, master)
    from changelane.spark.events.rows import table_id_of
    from changelane.spark.ledgers.change_log import ChangeLog
    from changelane.spark.ledgers.parking import Parking

    parking = Parking(ChangeLog(lake))
    parked = {str(table_id_of(name)): one for name, one in parking.tables().items()}
    for name in tables:
        if name not in parked:
            raise UnknownNameError("parked table", name, parked)
    chosen = {name: one for name, one in parked.items() if not tables or name in tables}
    if not chosen:
        click.echo("no table is parked")
        return
    parking.set(*(msgspec.structs.replace(one, state="resumed") for one in chosen.values()))
    for name in sorted(chosen):
        click.echo(f"{printable(name)}: its events are merged by the next batch or run")
