# SPDX-License-Identifier: Apache-2.0
"""The command line: one module per command, imported when the command is called."""

import importlib
import io
import os
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import click

from changelane.cli.failures import failure_of, unexpected_failure_of
from changelane.errors import (
    ChangelaneError,
    ConfigError,
    MissingExtraError,
    UnreachableError,
)
from changelane.formats.contract.options import SECRET_OPTIONS

COMMANDS: Final[dict[str, str]] = {
    "convert": "Convert messages of one format into another.",
    "inspect": "Detect the format of a file or topic, and show its events.",
    "check": "Check a pipeline without writing anything, and show what it would do (Spark).",
    "run": "Apply a pipeline's changes to its tables (Spark).",
    "capture": "Capture a database into its capture log, without applying the changes.",
    "snapshot": "Read rows of single tables again, and show how far snapshots are.",
    "unpause": "Resume paused tables (Spark).",
    "status": "Show a pipeline's tables: rows, position, lag (Spark).",
    "query": "Query the newest rows of a pipeline's tables with SQL (Spark).",
    "verify": "Compare a captured database with its tables, while both change (Spark).",
    "quarantine": "List, show and replay quarantined events (Spark).",
    "trace": "Show the row, versions and events of one key of a table (Spark).",
    "schema": "Show or run the DDL that schema evolution needs (Spark).",
    "maintain": "Compact a pipeline's tables and expire old snapshots now (Spark).",
    "purge": "Delete tombstones that are older than the retention (Spark).",
    "package": "Package changelane for the executors of a cluster.",
    "prepare": "Prepare this machine, so that local runs start faster (Spark).",
    "dev": "Start a local Kafka broker for experiments.",
    "formats": "List the formats, their capabilities, and the losses of a conversion.",
    "profiles": "List the profiles of producers: topics, keys and partitions in Kafka.",
}
"""Command -> its help line. The command is the object of that name in the module of that name."""

FORMER_COMMANDS: Final = {"resume": "unpause", "explain": "trace"}
"""Former name of a command -> its present name."""
FORMER_OPTIONS: Final = {
    "--max-failures": "--max-errors",
    "--input-as": "--input-line-format",
    "--output-as": "--output-line-format",
    "--resume-from-tables": "--recover-checkpoint",
    "--skip-lost": "--allow-data-loss",
    "--most-held": "--max-buffered-events",
    "--orphan-halves": "--unpaired-updates",
    "--servers": "--bootstrap-servers",
}
"""Former name of an option -> its present name."""


class _WrongUse(click.ClickException):
    """An error with one line of text and exit code 2."""

    exit_code = 2


class Commands(click.Group):
    """A group that imports a command only to run it, so that `convert` never imports Spark."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in FORMER_COMMANDS:
            ctx.fail(f"{cmd_name!r} is now called {FORMER_COMMANDS[cmd_name]!r}")
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"changelane.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        if isinstance(sys.stdout, io.TextIOWrapper):  # JSON is written as bytes
            sys.stdout.reconfigure(errors="backslashreplace")  # as Python does for stderr
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            name = FORMER_OPTIONS.get(error.option_name)
            parameters = [] if error.ctx is None else error.ctx.command.params
            if name is None or not any(name in parameter.opts for parameter in parameters):
                raise
            raise click.UsageError(f"{error.option_name} is now called {name}", error.ctx) from None
        except UnreachableError as error:
            raise click.ClickException(failure_of(error)) from None  # the file may be valid
        except (ConfigError, MissingExtraError) as error:
            raise _WrongUse(failure_of(error)) from None
        except ChangelaneError as error:
            raise click.ClickException(failure_of(error)) from None
        except BrokenPipeError:
            raise  # click exits without a message if the reader of the output is closed
        except OSError as error:
            sentence = unexpected_failure_of(error) if isinstance(error, ConnectionError) else None
            raise click.ClickException(sentence or str(error)) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # errors of Spark: from py4j, pyarrow or Python
            if (sentence := unexpected_failure_of(error)) is None:
                raise
            raise click.ClickException(sentence) from None


def _show_version(ctx: click.Context, parameter: click.Parameter, is_requested: bool) -> None:  # noqa: FBT001 - click's signature
    del parameter
    if is_requested:
        try:
            click.echo(f"changelane {version('changelane')}")
        except PackageNotFoundError:
            click.echo("changelane (not installed)")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, expose_value=False, callback=_show_version, is_eager=True)
def main() -> None:
    """Read, convert, deliver and apply database change events of many CDC formats.

    Exit codes: 0 success, 1 failure or more failures than allowed, 2 wrong use or configuration.
    """


def options(
    prefix: str, owner: str, *, fills_secrets: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator for the repeatable option ``--PREFIX-option NAME=VALUE``, as a mapping.

    Args:
        prefix: The begin of the option's name.
        owner: What the option belongs to, for the help.
        fills_secrets: Whether secrets are filled from the environment here.
    """
    return click.option(
        f"--{prefix}-option",
        f"{prefix}_options",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_filled_pairs if fills_secrets else _pairs,
        help=f"An option of the {owner}; repeatable.",
    )


def _pairs(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter("write NAME=VALUE", ctx, parameter)
        pairs[name] = value
    return pairs


def _filled_pairs(
    ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    return {
        name: _filled(value) if name in SECRET_OPTIONS else value
        for name, value in _pairs(ctx, parameter, values).items()
    }


def _filled(secret: str) -> str:
    """Return a secret from the environment, so that it is in no list of processes."""
    from changelane.pipeline.yaml import fill_variables

    filled: str = fill_variables(secret, os.environ)
    return filled
