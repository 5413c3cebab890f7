# SPDX-License-Identifier: Apache-2.0
"""The common options of all sinks of topics."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

import msgspec

from changelane.codec import get_codec
from changelane.errors import ConfigError
from changelane.formats.contract.losses import DEFAULT, LossPolicy
from changelane.formats.contract.options import changed_options
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.interface import STATE_FORMAT, ResolvePath, Source
from changelane.pipeline.kafka_source import KafkaSource
from changelane.pipeline.options import Options
from changelane.pipeline.segments_source import SegmentsSource

OrderedSource = KafkaSource | SegmentsSource
"""A source whose messages can be sent in their order."""

PLACEHOLDERS: Final = ("topic", "database", "schema", "table")
"""The placeholders in a sink's topic."""
PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
TOPIC_SINK_OPTIONS: Final = frozenset(
    {
        "checkpoint",
        "trigger",
        "interval",
        "on_error",
        "max_errors",
        "metrics_port",
        "metrics_host",
        "spark_options",
    }
)
"""The pipeline options that apply to a sink of topics."""
_SPLITTING: Final = {"minpartitions", "maxrecordsperpartition"}


class TopicSinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that every sink of topics has; a sink's class inherits from it.

    Attributes:
        format: The format of the messages, such as ``canal-json``.
        format_options: The options of the format.
        on_loss: The policy for losses: ``raise`` quarantines the event, ``warn`` and ``ignore``
            only count the loss; or the accepted losses, by name or kind. By default losses of
            metadata are accepted, and losses of data quarantine the event.
        block_keys_on_error: While a message is quarantined, later messages with its key in its
            partition are quarantined too, as ``held``. A replay sends them after it, in their
            order. Messages without a key count as one key.
        checkpoint: The folder of the pipeline's progress and quarantine. Required.
    """

    format: str
    format_options: dict[str, Any] = {}
    on_loss: Literal["raise", "warn", "ignore"] | LossPolicy = DEFAULT
    block_keys_on_error: bool = False
    checkpoint: str = ""

    def __post_init__(self) -> None:
        """Reject a sink without a checkpoint."""
        if not self.checkpoint:
            raise ValueError(
                f"a {self.type_name} sink needs checkpoint: a folder for the pipeline's progress "
                "and quarantine; without it each run would send all messages again"
            )

    @property
    def type_name(self) -> str:
        """The name of the type of sink."""
        return str(self.__struct_config__.tag)

    @property
    def is_topics(self) -> bool:
        """True."""
        return True

    @property
    def applies_expressions(self) -> bool:
        """Whether the sink supports the transforms ``filter`` and ``compute``."""
        return False

    @property
    def folder(self) -> str:
        """The folder of the pipeline's state."""
        return self.checkpoint

    @property
    def folder_option(self) -> str:
        """The name of the option that sets the folder."""
        return "sink.checkpoint"

    @property
    def table_format(self) -> str:
        """The format of the quarantine and of the pipeline's state."""
        return STATE_FORMAT

    @property
    def table_options(self) -> Mapping[str, Any]:
        """None: the tables of the state are in the folder."""
        return {}

    @property
    def can_list_tables(self) -> bool:
        """True: the state tables are in a folder."""
        return True

    @property
    def jars(self) -> tuple[str, ...]:
        """The jars that Spark needs."""
        return (STATE_FORMAT,)

    @property
    def brokers(self) -> str:
        """None: only Kafka's sink has brokers."""
        return ""

    @property
    def label(self) -> str:
        """The messages as text."""
        return f"{self.format} in {self.type_name}"

    @property
    def blocks_keys(self) -> bool:
        """Whether a quarantined message blocks later messages with its key."""
        return self.block_keys_on_error

    @property
    def names_option(self) -> str:
        """The name of the option that :meth:`check_names` checks."""
        return "sink.format"

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with an absolute path of the checkpoint."""
        return msgspec.structs.replace(self, checkpoint=resolve(self.checkpoint))

    def check(self, source: Source, options: Options) -> None:
        """Check that messages can be sent in their order.

        Raises:
            ConfigError: The source or an option would lose the order; the error names it.
        """
        ordered_source_of(source, options, self.type_name)

    def check_names(self) -> None:
        """Check the name of the format and its options.

        Raises:
            ConfigError: A name or an option is invalid.
            MissingExtraError: The library of the format is not installed.
        """
        get_codec(self.format, **self.format_options)


def ordered_source_of(
    source: Source, options: Options, sink: str, *, advice: str = ""
) -> OrderedSource:
    """Return the source of a pipeline into topics: topics, or the changes of a database.

    Args:
        source: The source of the pipeline.
        options: The options of the pipeline.
        sink: The type of the sink.
        advice: The advice for another type of source, for the error.

    Raises:
        ConfigError: The source has another type, or an option would lose the order.
    """
    if isinstance(source, DatabaseSource):
        source = source.change_source
    if not isinstance(source, OrderedSource):
        raise ConfigError(f"a {sink} sink needs a kafka source, or a captured database{advice}")
    for name in changed_options(options):
        if name not in TOPIC_SINK_OPTIONS:
            raise ConfigError(f"options.{name} is for tables, and the sink is {sink}: remove it")
    spark_options = source.spark_options if isinstance(source, KafkaSource) else {}
    for name in spark_options:
        if name.lower() in _SPLITTING:
            msg = f"source.spark_options.{name} splits partitions and loses their order: remove it"
            raise ConfigError(msg)
    return source


def check_blocked_keys(on_error: str, masks: str) -> None:
    """Reject options that contradict ``block_keys_on_error``.

    Args:
        on_error: The option of this name.
        masks: The id of the masks, from ``masks_of``.

    Raises:
        ConfigError: Nothing is quarantined, or quarantined messages could not be replayed.
    """
    if on_error == "stop":
        raise ConfigError("`on_error: stop` quarantines nothing: remove sink.block_keys_on_error")
    if masks:
        msg = "sink.block_keys_on_error is not available with a mask, which prevents replays"
        raise ConfigError(msg)
