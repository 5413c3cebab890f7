# SPDX-License-Identifier: Apache-2.0
"""What the options of all sinks of topics share."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, Self

import msgspec

from changelane.codec import get_codec
from changelane.errors import ConfigError
from changelane.formats.contract.losses import DEFAULT, LossPolicy
from changelane.formats.contract.options import changed_options
from changelane.pipeline.interface import STATE_FORMAT, ResolvePath, Source
from changelane.pipeline.kafka_source import KafkaSource
from changelane.pipeline.options import Options

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
"""The options of a pipeline that apply to a sink of topics."""
_SPLITTING: Final = {"minpartitions", "maxrecordsperpartition"}


class TopicSinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that every sink of topics has; a sink's class inherits from it.

    Attributes:
        format: The messages' format, such as ``canal-json``.
        format_options: The format's options.
        on_loss: What happens to an event that the format cannot carry in full: ``raise``
            quarantines it, ``warn`` and ``ignore`` only count the loss; or which losses pass, by
            name or kind. By default losses of metadata pass, and losses of data quarantine the
            event.
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
        """Refuse a sink without a checkpoint."""
        if not self.checkpoint:
            raise ValueError(
                f"a {self.type_name} sink needs checkpoint: a folder where the pipeline keeps "
                "which offsets it has sent, and what it quarantined; without it each run would "
                "send "
                "everything again"
            )

    @property
    def type_name(self) -> str:
        """The name of the type of sink."""
        return str(self.__struct_config__.tag)

    @property
    def is_topics(self) -> bool:
        """Whether the sink is topics: it is."""
        return True

    @property
    def applies_expressions(self) -> bool:
        """Whether the transforms ``filter`` and ``compute`` can be used with it."""
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
        """Whether the tables of the state can be listed without writing."""
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
        """The messages for people."""
        return f"{self.format} in {self.type_name}"

    @property
    def blocks_keys(self) -> bool:
        """Whether messages are quarantined while an earlier one with their key is."""
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
            ConfigError: They cannot; the message names the reason.
        """
        topics_of(source, options, self.type_name)

    def check_names(self) -> None:
        """Check the name of the format and its options.

        Raises:
            ConfigError: A name or an option is wrong.
            MissingExtraError: The library of the format is not installed.
        """
        get_codec(self.format, **self.format_options)


def topics_of(source: Source, options: Options, sink: str, *, advice: str = "") -> KafkaSource:
    """Return the topics whose messages a sink of topics takes, in their order.

    Args:
        source: The source of the pipeline.
        options: The options of the pipeline.
        sink: The type of the sink.
        advice: The advice for another source, for the message.

    Raises:
        ConfigError: The source is another one, or the options would lose the order.
    """
    if not isinstance(source, KafkaSource):
        raise ConfigError(f"a {sink} sink takes the messages of a kafka source{advice}")
    for name in changed_options(options):
        if name not in TOPIC_SINK_OPTIONS:
            raise ConfigError(f"options.{name} is about tables, and the sink is {sink}")
    for name in source.spark_options:
        if name.lower() in _SPLITTING:
            msg = f"source.spark_options.{name} splits a partition, so that its order is lost"
            raise ConfigError(msg)
    return source


def check_blocked_keys(on_error: str, masks: str) -> None:
    """Refuse options that exclude ``block_keys_on_error``.

    Args:
        on_error: The option of this name.
        masks: The masks of the transforms, as ``masks_of`` names them.

    Raises:
        ConfigError: Nothing is quarantined, or quarantined messages could not be replayed.
    """
    if on_error == "stop":
        raise ConfigError("`on_error: stop` quarantines nothing: remove sink.block_keys_on_error")
    if masks:
        msg = "sink.block_keys_on_error needs replays, and masked events cannot be replayed"
        raise ConfigError(msg)
