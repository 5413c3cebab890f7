# SPDX-License-Identifier: Apache-2.0
"""The options of a ``segments`` source: the capture log of a database."""

from typing import Annotated, Any, Self

import msgspec

from changelane.pipeline.interface import ResolvePath


class SegmentsSource(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="segments",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """A capture log, which a capture process writes (``docs/capture.md``).

    Attributes:
        path: The folder of the capture log.
        format: The format of the records.
        format_options: The options of the format.
        max_bytes_per_batch: The maximum size of the segments of a batch, compressed bytes; a batch
            has at least one segment.
    """

    path: str
    format: str = "debezium-json"
    format_options: dict[str, Any] = {}
    max_bytes_per_batch: Annotated[int, msgspec.Meta(ge=1)] = 128 << 20

    @property
    def capture_log(self) -> Self:
        """The capture log as a source: this one."""
        return self

    @property
    def label(self) -> str:
        """The capture log as text."""
        return f"segments of {self.path}"

    @property
    def type_name(self) -> str:
        """The name of the type of source."""
        return str(self.__struct_config__.tag)

    @property
    def start_text(self) -> str:
        """Empty: a new checkpoint begins with the oldest segment."""
        return ""

    @property
    def engine(self) -> str:
        """The module that reads the source on Spark."""
        return "changelane.spark.sources.segments"

    @property
    def jars(self) -> tuple[str, ...]:
        """Empty: the tasks read segments in Python."""
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
        """The capture log, which must be accessible from every machine of a cluster."""
        return (self.path,)

    @property
    def needs_spark_4(self) -> bool:
        """Whether the source needs Spark 4."""
        return False

    @property
    def uses_event_ids(self) -> bool:
        """False: records have the positions of the database's log."""
        return False

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with an absolute path."""
        return msgspec.structs.replace(self, path=resolve(self.path))
