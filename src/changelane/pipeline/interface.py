# SPDX-License-Identifier: Apache-2.0
"""The interface of the options of sources and sinks.

Each type of source and sink is a class of options in a module of this package, listed in
``config.py``. All other modules use these protocols instead of the classes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, Self

from changelane.formats.contract.losses import LossPolicy
from changelane.pipeline.options import Options

STATE_FORMAT: Final = "delta"
"""The table format of the state of a pipeline into topics."""

ResolvePath = Callable[[str], str]
"""Returns a path of a pipeline's file as an absolute path; an address stays unchanged."""


class Source(Protocol):
    """The options of a source."""

    @property
    def format(self) -> str:
        """The name of the messages' format."""
        ...

    @property
    def format_options(self) -> dict[str, Any]:
        """The options of the format."""
        ...

    @property
    def label(self) -> str:
        """The input as text, such as ``files of changes/``."""
        ...

    @property
    def type_name(self) -> str:
        """The name of the type, such as ``kafka``."""
        ...

    @property
    def start_text(self) -> str:
        """The start of a new checkpoint as text; empty if it is the beginning."""
        ...

    @property
    def begins_at_latest(self) -> bool:
        """Whether a new checkpoint begins after the latest input."""
        ...

    @property
    def engine(self) -> str:
        """The module that reads the source on Spark, with ``open_input``.

        Its interface is in ``spark/sources/interface.py``.
        """
        ...

    @property
    def jars(self) -> tuple[str, ...]:
        """The jars that Spark needs, by their names in ``spark/runtime/jars.py``."""
        ...

    @property
    def brokers(self) -> str:
        """The addresses of Kafka brokers, one of which must answer; empty if there are none."""
        ...

    @property
    def required_topics(self) -> tuple[str, ...]:
        """The topics that must exist at the brokers, if no credentials are needed to list them."""
        ...

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that must be accessible from every machine of a cluster."""
        ...

    @property
    def needs_spark_4(self) -> bool:
        """Whether the source needs Spark 4."""
        ...

    @property
    def uses_event_ids(self) -> bool:
        """Whether events without positions are ordered by event ids."""
        ...

    @property
    def is_capture_log(self) -> bool:
        """Whether the messages are those of a capture log, whose orders have a domain of it."""
        ...

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with absolute paths."""
        ...


class Sink(Protocol):
    """The options of a sink: a lake of tables, or topics."""

    @property
    def type_name(self) -> str:
        """The name of the type, such as ``delta``."""
        ...

    @property
    def is_topics(self) -> bool:
        """Whether the sink is topics (:class:`TopicSink`), not a lake of tables."""
        ...

    @property
    def applies_expressions(self) -> bool:
        """Whether the sink supports the transforms ``filter`` and ``compute``."""
        ...

    @property
    def folder(self) -> str:
        """The folder of the tables; with topics, the folder of the pipeline's state."""
        ...

    @property
    def folder_option(self) -> str:
        """The name of the option that sets the folder."""
        ...

    @property
    def table_format(self) -> str:
        """The format of the tables; with topics, of the quarantine and the pipeline's state."""
        ...

    @property
    def table_options(self) -> Mapping[str, Any]:
        """The options of the lake, beside its folder and format."""
        ...

    @property
    def engine(self) -> str:
        """The module that writes the sink on Spark.

        For topics it has ``check`` and ``open_sender`` (``spark/sinks/interface.py``).
        """
        ...

    @property
    def jars(self) -> tuple[str, ...]:
        """The jars that Spark needs, by their names in ``spark/runtime/jars.py``."""
        ...

    @property
    def label(self) -> str:
        """The output as text, such as ``delta tables in lake/``."""
        ...

    @property
    def brokers(self) -> str:
        """The addresses of Kafka brokers, one of which must answer; empty if there are none."""
        ...

    @property
    def can_list_tables(self) -> bool:
        """Whether the tables can be listed without a write to their catalog."""
        ...

    @property
    def blocks_keys(self) -> bool:
        """Whether a quarantined message blocks later messages with its key."""
        ...

    @property
    def names_option(self) -> str:
        """The name of the option that :meth:`check_names` checks."""
        ...

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with absolute paths."""
        ...

    def check(self, source: Source, options: Options) -> None:
        """Check the options against those of the source and of the pipeline.

        Raises:
            ConfigError: The options contradict each other; the error names the fix.
        """
        ...

    def check_names(self) -> None:
        """Check the names of the format and the profile, and their options.

        Raises:
            ConfigError: A name or an option is invalid.
            MissingExtraError: The library of a format is not installed.
        """
        ...


class TopicSink(Sink, Protocol):
    """The options of a sink of topics, for messages in a format."""

    @property
    def format(self) -> str:
        """The name of the messages' format."""
        ...

    @property
    def format_options(self) -> dict[str, Any]:
        """The options of the format."""
        ...

    @property
    def on_loss(self) -> str | LossPolicy:
        """The policy for losses of the format."""
        ...
