"""A sink of a third party: posts each message as a line of JSON to a web service.

The whole package is this module and an entry point of the group ``changelane.sinks``.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from changelane.errors import ConfigError, UnreachableError
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.topic_sink import OrderedSource, TopicSinkOptions
from changelane.spark.sinks.interface import Sender
from changelane.spark.sinks.message_sender import MessageSender

TIMEOUT_S = 10.0


class HttpLinesSink(
    TopicSinkOptions,
    frozen=True,
    kw_only=True,
    tag="http-lines",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """A web service that takes lines of JSON.

    Attributes:
        url: The address that the lines are posted to.
        lines: The maximum number of lines of a request.
    """

    url: str
    lines: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("url must begin with http:// or https://")

    @property
    def engine(self) -> str:
        return __name__

    @property
    def label(self) -> str:
        return f"{self.format} to {self.url}"


def check(
    spark: SparkSession, pipeline: Pipeline, source: OrderedSource, notify: Callable[[str], None]
) -> None:
    del spark, source, notify
    url = pipeline.sink.url
    try:
        urllib.request.urlopen(url, b"", TIMEOUT_S).close()
    except urllib.error.HTTPError as error:
        raise ConfigError(f"sink.url: {url} answers {error.code}") from None
    except OSError as error:
        raise UnreachableError(f"sink.url: {url} does not answer ({error})") from None


def open_sender(
    spark: SparkSession, pipeline: Pipeline, source: OrderedSource, notify: Callable[[str], None]
) -> Sender:
    del notify
    sink: Any = pipeline.sink
    open_writer = partial(Writer, sink.url, sink.lines)
    return MessageSender(
        spark, pipeline, source, sink, topic="{database}.{table}", open_writer=open_writer
    )


class Writer:
    """Posts the lines of one task, in their order."""

    def __init__(self, url: str, lines: int) -> None:
        self._url = url
        self._limit = lines
        self._lines: list[bytes] = []

    def write(self, message: Message) -> None:
        line = {"table": message.topic, "value": json.loads(message.value or b"null")}
        self._lines.append(json.dumps(line).encode())
        if len(self._lines) >= self._limit:
            self.flush()

    def flush(self) -> None:
        if self._lines:
            body = b"\n".join(self._lines)
            urllib.request.urlopen(self._url, body, TIMEOUT_S).close()
            self._lines = []
