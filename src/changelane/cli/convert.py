# SPDX-License-Identifier: Apache-2.0
"""``changelane convert``: convert messages of one format into another, from file to file."""

import os
import sys
from contextlib import ExitStack
from functools import partial

import click
import msgspec

from changelane import profiles
from changelane.cli import options
from changelane.cli.progress import Progress, print_failures, stop_cleanly_when_terminated
from changelane.codec import Codec, get_codec
from changelane.conversion.group_transactions import MAX_BUFFERED
from changelane.conversion.jobs import Jobs, check_independence, job_count
from changelane.conversion.join_update_halves import Orphans
from changelane.conversion.lines import Conversion, StopAtFailureError
from changelane.conversion.message_files import (
    LineFormat,
    Lines,
    is_plain_stream,
    is_same_file,
    open_input,
    open_output,
)
from changelane.conversion.message_input import MessageInput, OpenedInput
from changelane.conversion.summary import Summary
from changelane.conversion.terminal_text import printable
from changelane.conversion.topic_input import is_topic_url, open_topic
from changelane.data_files.data_file_input import open_data_file
from changelane.data_files.row_file import kind_of
from changelane.errors import (
    ConfigError,
    DecodeError,
)
from changelane.formats.contract.losses import DEFAULT, LossPolicy, OnLoss
from changelane.pipeline.config import load_transforms
from changelane.pipeline.error_budget import Budget
from changelane.profiles.profile import Profile
from changelane.transforms.chain import Chain

_FORMS = click.Choice(["auto", *(form.value for form in LineFormat)])


@click.command(
    epilog="Failures: a message that cannot be read, or an event that cannot be written without "
    "a loss, is reported on stderr and written to --failures, and the conversion continues. "
    "Exit code 0: at most --max-errors messages failed; 1: more, or --fail-fast stopped; "
    "2: wrong use."
)
@click.argument("input_path", metavar="[IN]", default="-")
@click.argument("output_path", metavar="[OUT]", default="-")
@click.option("-f", "--from", "source", required=True, metavar="FORMAT", help="Format of IN.")
@click.option("-t", "--to", "target", required=True, metavar="FORMAT", help="Format of OUT.")
@click.option(
    "--input-line-format",
    type=_FORMS,
    default="auto",
    help="value: a line is the value of a message; record: an object with topic, key, value, "
    "headers ...; auto (default): record if the first line has topic and value.",
)
@click.option(
    "--output-line-format",
    type=_FORMS,
    default="auto",
    help="The same for OUT; auto (default): the format of IN.",
)
@click.option(
    "--on-loss",
    type=click.Choice([policy.value for policy in OnLoss]),
    help="The effect of a loss that --accept does not name: the event fails (raise), or the loss "
    "is counted and listed (warn), or only counted (ignore). Default: raise; --on-loss raise "
    "without --accept rejects every loss.",
)
@click.option(
    "--accept",
    "accepted",
    metavar="NAME[,NAME]...",
    multiple=True,
    help="Accepted losses, which are counted and listed: metadata (source block, types, "
    "nullability, transaction, position), data (values, column states, operations, keys), a group "
    "such as source, or one loss such as schema.nullable (docs/losses.md lists all). Repeatable. "
    "Default: metadata.",
)
@click.option(
    "--failures",
    "failures_path",
    metavar="FILE",
    help="Write failures to this file, each as a record with line and reason: unreadable messages "
    "unchanged, events that cannot be written as native-json.",
)
@click.option(
    "--max-errors",
    default="0",
    metavar="N|P%",
    help="The maximum number (or share) of failed messages for exit code 0. Default: 0. The "
    "conversion continues in any case.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure; OUT is not written.")
@click.option(
    "--unpaired-updates",
    "orphans",
    type=click.Choice(["fail", "pass"]),
    default="fail",
    help="The effect of half an update without its other half (DataHub): it fails (default), or "
    "it passes as a plain delete or insert.",
)
@click.option(
    "--transactions",
    type=click.Choice(["off", "report", "mark"]),
    default="off",
    help="Write the operations of a transaction together and in order, as soon as the transaction "
    "is complete (for formats that number them: SharePlex, Debezium). Incomplete transactions are "
    "written, too, and listed in the summary (report), or there and in a message before them "
    "(mark). Default: off, the order of IN.",
)
@click.option(
    "--max-buffered-events",
    type=click.IntRange(min=0),
    default=MAX_BUFFERED,
    show_default=True,
    help="The maximum number of events that --transactions buffers; beyond it the oldest "
    "incomplete transaction is written.",
)
@click.option(
    "--table",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Only events of tables with a full name (such as shop.public.orders) that matches this "
    "glob; repeatable.",
)
@click.option(
    "--transform",
    "transforms_path",
    metavar="FILE",
    help="Transform each event: a YAML file with a list of `transforms` (route, include, exclude, "
    "project, rename, mask, cast; see docs/transforms.md).",
)
@click.option(
    "--profile",
    "profile_name",
    metavar="NAME",
    help="Write records with the topic, key, headers and partition of this producer in Kafka "
    "(changelane profiles lists all). Default: those of the format.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="The number of partitions of each topic, for --profile.",
)
@options("from", "format of --from")
@options("rows", "rows of a Parquet, Avro or CSV file, such as table=shop.orders (docs/files.md)")
@options("to", "format of --to")
@options("profile", "producer of --profile")
@options("kafka", "Kafka client, such as kafka.security.protocol=SASL_SSL; for IN that is a topic")
@click.option(
    "--output",
    "summary_form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Format of the summary on stderr.",
)
@click.option(
    "--jobs",
    metavar="N",
    default="1",
    help="The number of processes that convert; 0 or auto: the number of cores. The output is that "
    "of one process, in the order of IN. Default: 1.",
)
def convert(
    input_path: str,
    output_path: str,
    *,
    source: str,
    target: str,
    input_line_format: str,
    output_line_format: str,
    on_loss: str | None,
    accepted: tuple[str, ...],
    failures_path: str | None,
    max_errors: str,
    fail_fast: bool,
    orphans: str,
    transactions: str,
    max_buffered_events: int,
    patterns: tuple[str, ...],
    transforms_path: str | None,
    from_options: dict[str, str],
    rows_options: dict[str, str],
    to_options: dict[str, str],
    profile_name: str | None,
    partitions: int | None,
    profile_options: dict[str, str],
    kafka_options: dict[str, str],
    summary_form: str,
    jobs: str,
) -> None:
    """Convert the messages of IN into another format, and write them to OUT.

    IN and OUT are paths or - (the default); files with the suffixes .gz, .zst and .bz2 are
    compressed. OUT appears when it is complete. A summary is written to stderr.

    IN may be a Parquet or Avro file of messages (columns value, key, topic ...), or, with -f
    native-json, a Parquet, Avro or CSV file of rows.

    IN may be a topic: its present messages are read, partition after partition. The URL may set the
    maximum number of messages (max=100), the last ones (from=latest) or one partition
    (partition=0). Nothing is committed.

    \b
    changelane convert -f debezium-json -t canal-json in.jsonl.gz out.jsonl
    changelane convert -f debezium-json -t canal-json kafka://host:9092/shop.orders out.jsonl
    """  # noqa: D301 - click's own marker of a paragraph that keeps its lines
    budget = Budget.parse(max_errors, "--max-errors")
    summary = Summary(source, target, _policy(on_loss, accepted), budget)
    if failures_path is not None:
        _check_failures(failures_path, input_path, output_path)
    _check_topics(input_path, (output_path, failures_path), input_line_format, kafka_options)
    reader = get_codec(source, **from_options)
    profile, writer = _writer(target, to_options, profile_name, profile_options, partitions)
    if profile is not None:
        if output_line_format == LineFormat.VALUE:
            raise ConfigError("--profile needs --output-line-format record")
        output_line_format = LineFormat.RECORD
    steps = () if transforms_path is None else load_transforms(transforms_path)
    job_total = job_count(jobs)
    if job_total > 1:
        check_independence(reader, transactions, steps)
    quiet = summary_form == "json"
    reported_errors = 0
    stop_cleanly_when_terminated()
    with ExitStack() as stack:
        opened, lines = _open_messages(
            stack,
            input_path,
            source,
            line_format=input_line_format,
            rows_options=rows_options,
            kafka_options=kafka_options,
        )
        failures = stack.enter_context(open_output(failures_path)) if failures_path else None
        make_conversion = partial(
            Conversion,
            reader,
            writer,
            output_form=None if output_line_format == "auto" else LineFormat(output_line_format),
            patterns=patterns,
            fail_fast=fail_fast,
            orphans=Orphans.HALF if orphans == "fail" else Orphans.CHANGE,
            transactions=transactions,
            max_buffered=max_buffered_events,
            profile=profile,
            partitions=partitions,
            transforms=Chain(steps, sees_all=True),
        )
        conversion = make_conversion(summary, failures=failures)
        run = conversion.run
        if job_total > 1:
            is_ready = opened.is_ready
            run = stack.enter_context(
                Jobs(conversion, make_conversion, count=job_total, is_ready=is_ready)
            ).run
        try:
            is_stream = is_plain_stream(output_path)
            with open_output(output_path) as output, Progress(opened, quiet=quiet) as progress:
                for _ in run(lines, output):
                    if is_stream:
                        output.flush()
                    if not quiet:
                        reported_errors = print_failures(summary, reported_errors)
                    progress.advance(summary)
        except StopAtFailureError:
            summary.stopped = "stopped at the first failure (--fail-fast)"
        except DecodeError as error:  # the rest of the input cannot be read
            summary.stopped = printable(str(error))  # the name of a file may be no Unicode
    if quiet:
        click.echo(summary.as_json(), err=True)
    else:
        print_failures(summary, reported_errors)
        click.echo(summary.as_text(), err=True)
    if summary.stopped or not summary.is_within_budget:
        sys.exit(1)


def _writer(
    target: str,
    to_options: dict[str, str],
    profile_name: str | None,
    profile_options: dict[str, str],
    partitions: int | None,
) -> tuple[Profile | None, Codec]:
    """Return the profile, if any, and the codec of the target format.

    Raises:
        ConfigError: An option is invalid.
    """
    if profile_name is not None:
        profile = profiles.load(profile_name, profile_options)
        return profile, profile.codec(target, to_options)
    if profile_options or partitions:
        raise ConfigError("--profile-option and --partitions need --profile")
    return None, get_codec(target, **to_options)


def _open_messages(
    stack: ExitStack,
    path: str,
    source: str,
    *,
    line_format: str,
    rows_options: dict[str, str],
    kafka_options: dict[str, str],
) -> tuple[OpenedInput, MessageInput]:
    """Open the input, and return it with its messages.

    Raises:
        ConfigError: An option does not fit the kind of the input.
    """
    if is_topic_url(path):
        topic = stack.enter_context(open_topic(path, kafka_options, os.environ))
        return topic, topic
    if kind_of(path):
        if line_format != "auto":
            raise ConfigError("a data file has no lines: remove --input-line-format")
        data_file = stack.enter_context(open_data_file(path, rows_options, source))
        return data_file, data_file
    if rows_options:
        raise ConfigError("--rows-option needs a file .parquet, .avro or .csv as IN")
    opened = stack.enter_context(open_input(path))
    form = None if line_format == "auto" else LineFormat(line_format)
    return opened, Lines(opened.stream, form)


def _check_failures(path: str, input_path: str, output_path: str) -> None:
    """Reject a file of failures that is the input or the output.

    Raises:
        ConfigError: They are the same file, or both the standard output.
    """
    if path == output_path == "-":
        raise ConfigError("OUT and --failures are both the standard output: name a file")
    for name, other_path in (("IN", input_path), ("OUT", output_path)):
        if is_same_file(other_path, path):
            raise ConfigError(f"{name} and --failures are the same file")


def _check_topics(
    input_path: str,
    outputs: tuple[str | None, ...],
    input_line_format: str,
    kafka_options: dict[str, str],
) -> None:
    """Reject options that contradict a topic as IN, and topics as outputs.

    Raises:
        ConfigError: An option or an output is invalid.
    """
    if any(path is not None and is_topic_url(path) for path in outputs):
        msg = "OUT and --failures must be files: use a pipeline to write to topics (changelane run)"
        raise ConfigError(msg)
    if not is_topic_url(input_path):
        if kafka_options:
            raise ConfigError("--kafka-option needs a topic as IN: kafka://host:9092/topic")
    elif input_line_format == LineFormat.VALUE:
        raise ConfigError("messages of a topic are records: remove --input-line-format")


def _policy(on_loss: str | None, accepted: tuple[str, ...]) -> OnLoss | LossPolicy:
    """Return the policy for losses of the command line.

    Raises:
        ConfigError: A name is unknown.
    """
    names = [name.strip() for option in accepted for name in option.split(",") if name.strip()]
    if not accepted:
        return DEFAULT if on_loss is None else OnLoss(on_loss)
    try:
        return msgspec.convert({"accept": names, "else": on_loss or OnLoss.RAISE.value}, LossPolicy)
    except msgspec.ValidationError as error:
        raise ConfigError(f"--accept: {error}") from None
