# SPDX-License-Identifier: Apache-2.0
"""``changelane prepare``: the jars and the class archive of this machine's local runs."""

import sys

import click

from changelane.cli.failures import create_log_file
from changelane.conversion.terminal_text import printable
from changelane.errors import MissingExtraError


@click.command()
def prepare() -> None:
    """Prepare this machine, so that local runs start faster; takes about a minute.

    Spark's packages for the table formats are fetched, if they are missing. A small pipeline of
    each format runs in a temporary folder, and the JVM archives the classes that it loads. The
    archive has about 270 MB; its name is printed.

    `changelane run` and the other commands with Spark use the archive while Java, Spark and the
    packages are the same. After an update of one of them, run this command again.
    """
    try:
        from changelane.spark.run.class_training import create_archive
        from changelane.spark.runtime import jvm
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    jvm.check_java()
    archive = create_archive(
        notify=lambda note: click.echo(f"changelane: {note}", err=True), log=create_log_file()
    )
    if archive is None:
        click.echo(f"changelane: Java wrote no class archive (see {create_log_file()})", err=True)
        sys.exit(1)
    click.echo(printable(str(archive)))
