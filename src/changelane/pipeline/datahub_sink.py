# SPDX-License-Identifier: Apache-2.0
"""The ``datahub`` sink: topics of DataHub as the sink of a pipeline, in its YAML.

::

    sink:
      type: datahub
      endpoint: https://dh-cn-hangzhou.aliyuncs.com
      project: shop
      topic: orders
      format: datahub-tuple
      access_id: ${DATAHUB_ACCESS_ID}
      access_key: ${DATAHUB_ACCESS_KEY}
      checkpoint: state/
"""

import re
from typing import Annotated, Final, Literal

import msgspec

from changelane.pipeline.topic_sink import PLACEHOLDER, TopicSinkOptions

PLACEHOLDERS: Final = ("database", "schema", "table")
"""The placeholders in the topic of ``datahub-tuple``."""

_PROJECT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{2,31}")
_TOPIC: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}")
_ENDPOINT: Final = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+/?")


def is_topic(name: str) -> bool:
    """Whether a text is a valid topic name.

    "The name must start with a letter and can contain only letters, digits, and underscores" with
    a length of 1 to 128 (https://www.alibabacloud.com/help/en/datahub/limits).

    >>> is_topic("shop_orders"), is_topic("shop.orders"), is_topic("1st")
    (True, False, False)
    """
    return _TOPIC.fullmatch(name) is not None


def is_endpoint(text: str) -> bool:
    """Whether a text is a valid address of the service."""
    return _ENDPOINT.fullmatch(text) is not None


def is_project(name: str) -> bool:
    """Whether a text is a valid project name."""
    return _PROJECT.fullmatch(name) is not None


def check_access(endpoint: str, project: str, access_id: str, access_key: str) -> None:
    """Reject an invalid address, project or access key.

    Raises:
        ValueError: One of them is invalid; the error does not quote it.
    """
    if not access_id or not access_key:
        raise ValueError("access_id or access_key is empty")
    if not is_endpoint(endpoint):
        raise ValueError("endpoint must be an address such as https://dh-cn-hangzhou.aliyuncs.com")
    if not is_project(project):
        raise ValueError("project is not a valid project name")


class Create(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The creation of missing topics.

    Attributes:
        shards: The number of shards of a topic.
        days: The retention of its records, in days.
    """

    shards: Annotated[int, msgspec.Meta(ge=1, le=256)]
    days: Annotated[int, msgspec.Meta(ge=1, le=7)] = 7


class DataHubSink(
    TopicSinkOptions,
    frozen=True,
    kw_only=True,
    tag="datahub",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """Topics of a DataHub project, with at-least-once delivery.

    Attributes:
        endpoint: The service's address, such as ``https://dh-cn-hangzhou.aliyuncs.com``.
        project: The project.
        topic: The topic. With ``datahub-tuple`` it is for one table; ``{database}``, ``{schema}``
            and ``{table}`` in its name give each table a topic. With ``datahub-blob`` it is for all
            tables.
        format: ``datahub-tuple`` (a column is a field of the topic) or ``datahub-blob`` (JSON).
        access_id: The access key's id, from the environment: ``${NAME}``.
        access_key: The access key's secret, from the environment.
        security_token: The token of temporary keys, from the environment.
        format_options: The options of the format.
        keys: Table name -> columns that determine the shard of a row, instead of the table's key.
        create: The creation of missing topics; without it topics must exist.
        non_row_events: The shards for heartbeats, transactions and control records, which only
            ``datahub-blob`` can carry: the first shard, each shard, or none.
        on_loss: The policy for losses: ``raise`` quarantines the event, ``warn`` and ``ignore``
            only count the loss; or the accepted losses, by name or kind. By default losses of
            metadata are accepted, and losses of data quarantine the event.
        protocol: ``protobuf`` writes all or none of a shard's records. ``json``, for services
            without protobuf, may write a part of them, so only one record of a key is sent at a
            time.
        compression: The compression of requests.
        batch_records: The maximum number of records of a request.
        batch_bytes: The approximate maximum size of a request, in bytes.
        retry_seconds: The time for retries of a request while the service fails, in seconds.
        block_keys_on_error: While a message is quarantined, later messages with its key in its
            partition are quarantined too, as ``held``. A replay sends them after it, in their
            order. Messages without a key count as one key.
        checkpoint: The folder of the pipeline's progress and quarantine. Required.
    """

    endpoint: str
    project: str
    topic: str
    format: Literal["datahub-tuple", "datahub-blob"]
    access_id: str
    access_key: str
    security_token: str = ""
    keys: dict[str, list[str]] = msgspec.field(default_factory=dict)
    create: Create | None = None
    non_row_events: Literal["first", "broadcast", "drop"] = "first"
    protocol: Literal["protobuf", "json"] = "protobuf"
    compression: Literal["lz4", "zlib", "none"] = "lz4"
    batch_records: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    batch_bytes: Annotated[int, msgspec.Meta(ge=1, le=2_500_000)] = 1_000_000
    retry_seconds: Annotated[float, msgspec.Meta(gt=0)] = 300.0

    def __post_init__(self) -> None:
        """Reject options that would lose records or their order."""
        super().__post_init__()
        check_access(self.endpoint, self.project, self.access_id, self.access_key)
        is_tuple = self.format == "datahub-tuple"
        for name in PLACEHOLDER.findall(self.topic):
            if not is_tuple:
                raise ValueError(
                    "datahub-blob has one topic for all tables: use no placeholder in topic"
                )
            if name not in PLACEHOLDERS:
                placeholders = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
                raise ValueError(f"topic has an unknown placeholder; there are {placeholders}")
        if not is_topic(PLACEHOLDER.sub("x", self.topic)):
            raise ValueError("topic is not a valid topic name")
        if is_tuple and (unknown_options := self.format_options.keys() - {"time_column"}):
            names = ", ".join(sorted(unknown_options))
            raise ValueError(
                f"format_options.{names}: remove it, the topic and the messages set it"
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.project!r}, {self.topic!r})"  # it contains secrets

    @property
    def engine(self) -> str:
        """The module that writes the sink on Spark."""
        return "changelane.spark.sinks.datahub"

    @property
    def label(self) -> str:
        """The records and their topic as text."""
        return f"{self.format} in topic {self.topic} of DataHub's project {self.project}"

    @property
    def kind(self) -> Literal["TUPLE", "BLOB"]:
        """The kind of the topics."""
        return "TUPLE" if self.format == "datahub-tuple" else "BLOB"

    @property
    def is_one_topic(self) -> bool:
        """Whether all records go into one topic."""
        return PLACEHOLDER.search(self.topic) is None
