# SPDX-License-Identifier: Apache-2.0
"""The common part of the options of sources: the properties of :class:`Source` with a default."""

from typing import Self

import msgspec

from changelane.pipeline.interface import ResolvePath


class SourceOptions(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True
):
    """The options of a source without brokers, folders or jars; a subclass sets its ``tag``."""

    @property
    def type_name(self) -> str:
        """The name of the type, such as ``kafka``."""
        return str(self.__struct_config__.tag)

    @property
    def start_text(self) -> str:
        """Empty: a new checkpoint begins with the oldest input."""
        return ""

    @property
    def begins_at_latest(self) -> bool:
        """False: a new checkpoint begins with the oldest input, or where the options say."""
        return False

    @property
    def jars(self) -> tuple[str, ...]:
        """Empty: Spark reads the source without jars."""
        return ()

    @property
    def brokers(self) -> str:
        """Empty: there is no Kafka broker."""
        return ""

    @property
    def required_topics(self) -> tuple[str, ...]:
        """Empty: there is no Kafka broker."""
        return ()

    @property
    def folders(self) -> tuple[str, ...]:
        """Empty: there is no folder that exists before the run."""
        return ()

    @property
    def needs_spark_4(self) -> bool:
        """Whether the source needs Spark 4."""
        return False

    @property
    def uses_event_ids(self) -> bool:
        """False: events without positions are ordered by the offsets of their messages."""
        return False

    @property
    def is_capture_log(self) -> bool:
        """False: the messages are not those of a capture log."""
        return False

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options: they have no paths."""
        del resolve
        return self
