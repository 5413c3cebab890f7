# SPDX-License-Identifier: Apache-2.0
"""``changelane package``: an archive with changelane for the executors of a cluster."""

import sys
from pathlib import Path

import click
import rich.console
import rich.progress

from changelane.conversion.terminal_text import printable
from changelane.errors import MissingExtraError


@click.command()
@click.option(
    "--platform",
    metavar="PLATFORM",
    help="Platform of the executors: linux-x86_64, linux-aarch64 (glibc 2.28 or newer), or a tag "
    "of pip; default: this platform.",
)
@click.option(
    "--python",
    metavar="X.Y",
    help="Python version of the executors and the driver; default: the running version.",
)
@click.option(
    "--with",
    "extras",
    multiple=True,
    metavar="NAME",
    help="Another installed package for the executors, such as a format; repeatable.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE.zip",
    help="Default: changelane-VERSION-pyX.Y-PLATFORM.zip in this folder.",
)
@click.option("--quiet", is_flag=True, help="Print no progress.")
def package(
    platform: str | None,
    python: str | None,
    extras: tuple[str, ...],
    output: Path | None,
    *,
    quiet: bool,
) -> None:
    """Package changelane and its dependencies for the executors of a cluster; print the file name.

    The archive contains the installed versions, without Spark and Python, which the cluster
    provides. Set options.executor_archive of a pipeline to its path; `changelane run --master URL`
    and spark-submit send it to the executors, so nothing is installed there (docs/deploy.md).

    For another platform or Python version the wheels are downloaded with pip, from its configured
    index; no compiler is needed. Equal environments give equal archives.
    """
    if python is not None and not _is_version(python):
        raise click.BadParameter("a minor version, such as 3.12", param_hint="--python")
    try:
        from changelane.spark.runtime import archive
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    target = archive.target_of(platform, python)
    if output is None:
        output = Path(archive.default_name(*target))
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(
        rich.progress.TextColumn("packing"),
        rich.progress.BarColumn(),
        rich.progress.DownloadColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    ) as bar:
        task = bar.add_task("packing", total=None)
        manifest = archive.write(
            output,
            platform=platform,
            python=python,
            extras=extras,
            progress=lambda completed, total: bar.update(task, completed=completed, total=total),
            pip_output=None if quiet else sys.stderr,
        )
    click.echo(printable(str(output)))
    click.echo(
        f"changelane: {len(manifest.packages)} packages for Python {manifest.python} on "
        f"{manifest.platform}, {output.stat().st_size / 1e6:.0f} MB",
        err=True,
    )


def _is_version(text: str) -> bool:
    major, dot, minor = text.partition(".")
    return bool(dot) and major == "3" and minor.isdecimal()
