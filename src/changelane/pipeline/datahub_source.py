# SPDX-License-Identifier: Apache-2.0
"""The ``datahub`` source: a topic of DataHub as the source of a pipeline, in its YAML.

::

    source:
      type: datahub
      endpoint: https://dh-cn-hangzhou.aliyuncs.com
      project: shop
      topic: orders
      format: datahub-tuple
      access_id: ${DATAHUB_ACCESS_ID}
      access_key: ${DATAHUB_ACCESS_KEY}
"""

from typing import Annotated, Any, Literal, Protocol

import msgspec

from changelane.pipeline.datahub_sink import check_access, is_topic
from changelane.pipeline.source_options import SourceOptions


class Access(Protocol):
    """The options of a connection to a project, for sources and sinks."""

    @property
    def endpoint(self) -> str:
        """The service's address."""
        ...

    @property
    def project(self) -> str:
        """The project."""
        ...

    @property
    def access_id(self) -> str:
        """The access key's id."""
        ...

    @property
    def access_key(self) -> str:
        """The access key's secret."""
        ...

    @property
    def security_token(self) -> str:
        """The token of temporary keys; empty if there is none."""
        ...

    @property
    def protocol(self) -> Literal["protobuf", "json"]:
        """The protocol of records."""
        ...

    @property
    def compression(self) -> Literal["lz4", "zlib", "none"]:
        """The compression of request bodies."""
        ...


class DataHubSource(
    SourceOptions, frozen=True, kw_only=True, tag="datahub", forbid_unknown_fields=True
):
    """A topic of a DataHub project.

    Attributes:
        endpoint: The service's address, such as ``https://dh-cn-hangzhou.aliyuncs.com``.
        project: The project.
        topic: The topic.
        format: ``datahub-tuple`` or ``datahub-blob``.
        access_id: The access key's id, from the environment: ``${NAME}``.
        access_key: The access key's secret, from the environment.
        security_token: The token of temporary keys, from the environment.
        format_options: The options of the format; the service provides the schema of a TUPLE topic.
        starting_offsets: The start of a new checkpoint: the oldest record, or after the latest one.
        compression: The compression of requests.
        retry_seconds: The time for retries of a request while the service fails, in seconds.
    """

    endpoint: str
    project: str
    topic: str
    format: Literal["datahub-tuple", "datahub-blob"]
    access_id: str
    access_key: str
    security_token: str = ""
    format_options: dict[str, Any] = {}
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    compression: Literal["lz4", "zlib", "none"] = "lz4"
    retry_seconds: Annotated[float, msgspec.Meta(gt=0)] = 300.0

    def __post_init__(self) -> None:
        """Reject invalid topics and access options."""
        check_access(self.endpoint, self.project, self.access_id, self.access_key)
        if not is_topic(self.topic):
            raise ValueError("topic is not a valid topic name")
        if "topic_schema" in self.format_options:
            raise ValueError("format_options.topic_schema: the service provides it: remove it")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"  # it contains secrets

    @property
    def protocol(self) -> Literal["protobuf", "json"]:
        """The protocol of records; with protobuf the client (2.29) confuses NULL and empty text."""
        return "json"

    @property
    def label(self) -> str:
        """The topic as text."""
        return f"{self.project}.{self.topic}"

    @property
    def start_text(self) -> str:
        """The start of a new checkpoint as text."""
        return f", and begin at {self.starting_offsets}"

    @property
    def begins_at_latest(self) -> bool:
        """Whether a new checkpoint begins after the latest message."""
        return self.starting_offsets == "latest"

    @property
    def engine(self) -> str:
        """The module that reads the source on Spark."""
        return "changelane.spark.sources.datahub"

    @property
    def needs_spark_4(self) -> bool:
        """True: Spark 3.5 has no data sources in Python."""
        return True

    @property
    def kind(self) -> Literal["TUPLE", "BLOB"]:
        """The required kind of the topic."""
        return "TUPLE" if self.format == "datahub-tuple" else "BLOB"
