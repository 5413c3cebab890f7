# SPDX-License-Identifier: Apache-2.0
"""The interface of a source and of a sink: what a pipeline asks of their options.

Each type of source and sink is a class of options in a module of this package, listed in
``config.py``. All other modules use these protocols, and no class by name.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, Self

from changelane.formats.contract.losses import LossPolicy
from changelane.pipeline.options import Options

STATE_FORMAT: Final = "delta"
"""The table format of the state of a pipeline whose sink is topics."""

ResolvePath = Callable[[str], str]
"""Returns a path of a pipeline's file as an absolute path; an address stays as it is."""


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
        """The input for people, such as ``files of changes/``."""
        ...

    @property
    def type_name(self) -> str:
        """The name of the type, such as ``kafka``."""
        ...

    @property
    def start_text(self) -> str:
        """The start of a new checkpoint, for people; empty = the beginning."""
        ...

    @property
    def engine(self) -> str:
        """The module that reads it on Spark; it has ``open_input``.

        ``spark/sources/interface.py`` describes it.
        """
        ...

    @property
    def jars(self) -> tuple[str, ...]:
        """The jars that Spark needs for it, by the names in ``spark/runtime/jars.py``."""
        ...

    @property
    def brokers(self) -> str:
        """The addresses of Kafka brokers, of which one must answer; empty = none."""
        ...

    @property
    def required_topics(self) -> tuple[str, ...]:
        """The topics that must exist at the brokers, and can be listed without credentials."""
        ...

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders that every machine of a cluster must see."""
        ...

    @property
    def needs_spark_4(self) -> bool:
        """Whether Spark 3.5 cannot read it."""
        ...

    @property
    def uses_event_ids(self) -> bool:
        """Whether events without positions are ordered by the ids of their messages."""
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
        """Whether the sink is topics (:class:`TopicSink`), and not a lake of tables."""
        ...

    @property
    def applies_expressions(self) -> bool:
        """Whether the transforms ``filter`` and ``compute`` can be used with it."""
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
        """The module that writes it on Spark.

        With topics it has ``check`` and ``open_sender`` (``spark/sinks/interface.py``).
        """
        ...

    @property
    def jars(self) -> tuple[str, ...]:
        """The jars that Spark needs for it, by the names in ``spark/runtime/jars.py``."""
        ...

    @property
    def label(self) -> str:
        """The output for people, such as ``delta tables in lake/``."""
        ...

    @property
    def brokers(self) -> str:
        """The addresses of Kafka brokers, of which one must answer; empty = none."""
        ...

    @property
    def can_list_tables(self) -> bool:
        """Whether the tables can be listed without writing to their catalog."""
        ...

    @property
    def blocks_keys(self) -> bool:
        """Whether messages are quarantined while an earlier one with their key is."""
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
            ConfigError: A pipeline cannot have them together; the message names the fix.
        """
        ...

    def check_names(self) -> None:
        """Check the names of the format and the profile, and their options.

        Raises:
            ConfigError: A name or an option is wrong.
            MissingExtraError: The library of a format is not installed.
        """
        ...


class TopicSink(Sink, Protocol):
    """The options of a sink that is topics: of messages in a format."""

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
        """The policy for what the format cannot carry."""
        ...
