# SPDX-License-Identifier: Apache-2.0
"""``changelane dev``: services on this machine, to try things out with."""

import contextlib
import signal
import sys

import click

from changelane.errors import MissingExtraError


@click.group()
def dev() -> None:
    """Start services on this machine to try things out with; never for data that anybody needs."""


@dev.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="N", help="Where it listens; a free port."
)
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="How many partitions a topic has that comes by itself.",
)
def broker(port: int | None, partitions: int) -> None:
    """Start a Kafka broker of one process, and print its address; Ctrl-C stops it.

    It is for trying things out: one node without any security, which only this machine reaches,
    and all its topics are gone when it stops. The first start fetches its jars (40 MB).
    """
    try:
        from changelane.spark.runtime.broker import broker as started
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None

    def end(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    with contextlib.suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGTERM, end)
    with contextlib.suppress(KeyboardInterrupt), started(port=port, partitions=partitions) as found:
        click.echo(found.servers)
        click.echo("changelane: a broker to try things out with; Ctrl-C stops it", err=True)
        code = found.wait()
        raise click.ClickException(f"the broker ended by itself (exit code {code})")
