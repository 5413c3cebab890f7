# SPDX-License-Identifier: Apache-2.0
"""The service through the vendor's client, ``pydatahub`` (the extra ``datahub``).

The module corrects two defects of the client (version 2.29): it does not check the server's
certificate (``verify=False`` in ``rest.py``), and its log quotes the server's messages about
records.
"""

import logging
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from changelane.datahub.service import RANGE, Content, ReadRecord, ServiceError, Shard, Topic
from changelane.datahub.shard_writer import Patience
from changelane.errors import MissingExtraError
from changelane.pipeline.datahub_source import Access

_LOGGERS: Final = ("datahub.rest", "datahub.account")
_COMMENT: Final = "made by changelane"
_READ_TIMEOUT_S: Final = 60
_OPENING_S: Final = 60.0
_CHECK_INTERVAL_S: Final = 0.5
"""The interval of checks; shards open in seconds, and each check counts in the quota."""


def patience(retry_s: float) -> Patience:
    """Return the retries for calls of the service, with the real clock."""
    return Patience(retry_s, clock=time.monotonic, sleep=time.sleep, chance=random.random)


class Sdk:
    """A project through ``pydatahub``; a :class:`~changelane.datahub.service.Service`.

    Args:
        access: The project, its keys, protocol and compression.

    Raises:
        MissingExtraError: ``pydatahub`` is not installed.
    """

    def __init__(self, access: Access) -> None:
        try:
            from datahub import DataHub
            from datahub.core import DatahubProtocolType
            from datahub.models import CompressFormat
        except ImportError:
            raise MissingExtraError("pydatahub", "datahub") from None
        for name in _LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._project = access.project
        self.writes_all_or_none: Final = access.protocol == "protobuf"
        self._schemas: dict[str, Any] = {}
        self._known_topics: set[str] = set()
        protocol = DatahubProtocolType.JSON
        if self.writes_all_or_none:
            protocol = DatahubProtocolType.PB
        self._client = DataHub(
            access.access_id,
            access.access_key,
            access.endpoint,
            compress_format=CompressFormat(access.compression.replace("none", "")),
            protocol_type=protocol,
            security_token=access.security_token,
            user_agent="changelane",  # the client's default contains the address of this machine
            retry_times=0,  # changelane decides about retries
            read_timeout=_READ_TIMEOUT_S,
        )
        _check_certificates(self._client)

    def topic(self, name: str) -> Topic | None:
        """Return a topic; ``None`` if it does not exist."""
        from datahub.models import RecordType

        try:
            with _errors():
                topic = self._client.get_topic(self._project, name)
        except ServiceError as error:
            if error.code == "NoSuchTopic":
                return None
            raise
        self._known_topics.add(name)
        if topic.record_type != RecordType.TUPLE:
            return Topic("BLOB")
        self._schemas[name] = topic.record_schema
        return Topic("TUPLE", topic.record_schema.to_json_string())

    def create(self, name: str, topic: Topic, *, shards: int, days: int) -> None:
        """Create a topic and wait for its shards; an existing topic stays unchanged."""
        from datahub.models import RecordSchema

        arguments = (self._project, name, shards, days)
        try:
            with _errors():
                if topic.kind == "TUPLE":
                    schema = RecordSchema.from_json_str(topic.schema)
                    self._client.create_tuple_topic(*arguments, schema, _COMMENT)
                else:
                    self._client.create_blob_topic(*arguments, _COMMENT)
        except ServiceError as error:
            if error.code != "TopicAlreadyExist":
                raise
        deadline = time.monotonic() + _OPENING_S
        while any(shard.state not in {"ACTIVE", "CLOSED"} for shard in self.shards(name)):
            if time.monotonic() > deadline:
                raise ServiceError("InternalServerError")
            time.sleep(_CHECK_INTERVAL_S)

    def shards(self, topic: str) -> Sequence[Shard]:
        """Return the shards of a topic."""
        with _errors():
            shards = self._client.list_shard(self._project, topic).shards
            return [
                Shard(
                    str(shard.shard_id),
                    int(shard.begin_hash_key or "0", 16),
                    min(int(shard.end_hash_key or "0", 16), RANGE - 1),
                    str(shard.state.value),
                    tuple(map(str, shard.parent_shard_ids or ())),
                )
                for shard in shards
            ]

    def put(self, topic: str, shard: str, records: Sequence[Content]) -> Mapping[int, ServiceError]:
        """Write records to a shard; return index -> error of the records that were not written."""
        with _errors():
            sdk_records = [self._record(topic, record) for record in records]
            if self.writes_all_or_none:
                self._client.put_records_by_shard(self._project, topic, shard, sdk_records)
                return {}
            for record in sdk_records:
                record.shard_id = shard
            result = self._client.put_records(self._project, topic, sdk_records)
            failed = {int(f.index): ServiceError(f.error_code) for f in result.failed_records}
            count = int(result.failed_record_count or 0)
            if len(failed) != count or not failed.keys() <= set(range(len(records))):
                # the missing records are unknown, so no record counts as written
                raise ServiceError("FailedRecordsUnknown")
            return failed

    def end_sequence(self, topic: str, shard: str, which: Literal["OLDEST", "LATEST"]) -> int:
        """Return the sequence of the oldest or latest end of a shard."""
        from datahub.models import CursorType

        with _errors():
            cursor = self._client.get_cursor(self._project, topic, shard, CursorType(which))
            return int(cursor.sequence)

    def read(self, topic: str, shard: str, sequence: int, limit: int) -> Sequence[ReadRecord]:
        """Return records from a sequence on, in order; empty if there are none yet."""
        from datahub.models import CursorType

        place = (self._project, topic, shard)
        if topic not in self._known_topics:
            self.topic(topic)
        with _errors():
            cursor = self._client.get_cursor(*place, CursorType.SEQUENCE, sequence).cursor
            if topic in self._schemas:
                schema = self._schemas[topic]
                sdk_records = self._client.get_tuple_records(*place, schema, cursor, limit).records
            else:
                sdk_records = self._client.get_blob_records(*place, cursor, limit).records
            return [_read_record(record) for record in sdk_records]

    def _record(self, topic: str, content: Content) -> Any:
        from datahub.models import BlobRecord, TupleRecord

        if isinstance(content, bytes):
            return BlobRecord(blob_data=content)
        return TupleRecord(schema=self._schemas[topic], values=list(content))


def _read_record(record: Any) -> ReadRecord:
    attribute_items = (record.attributes or {}).items()
    attributes = tuple((str(name), str(value)) for name, value in attribute_items)
    if hasattr(record, "blob_data"):
        return ReadRecord(int(record.sequence), bytes(record.blob_data), attributes)
    return ReadRecord(int(record.sequence), tuple(map(_text, record.values)), attributes)


def _text(value: Any) -> str | None:
    """Return a value as the text that the service sent, which the client converted."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.decode() if isinstance(value, bytes) else str(value)


@contextmanager
def _errors() -> Iterator[None]:
    """Convert the client's errors to :class:`ServiceError`, without their messages."""
    from datahub.exceptions import DatahubException, InvalidParameterException
    from requests import RequestException

    try:
        yield
    except ServiceError:
        raise
    except DatahubException as error:
        # errors of the client's checks of values have no code
        is_own = isinstance(error, InvalidParameterException) and not error.error_code
        code = "InvalidParameter" if is_own else error.error_code
        raise ServiceError(code, int(error.status_code or 0)) from None
    except RequestException as error:
        raise ServiceError(_kind(error)) from None
    except Exception as error:  # noqa: BLE001 - an answer that the client cannot read
        raise ServiceError(type(error).__name__) from None


def _kind(error: Exception) -> str:
    from requests.exceptions import InvalidURL, MissingSchema, SSLError

    if isinstance(error, SSLError):
        return "WrongCertificate"  # permanent
    return "WrongEndpoint" if isinstance(error, InvalidURL | MissingSchema) else "Unreachable"


def _check_certificates(client: Any) -> None:
    """Make requests check certificates, against the client's setting."""
    from requests.adapters import HTTPAdapter

    class Checking(HTTPAdapter):
        def send(self, request: Any, *arguments: Any, **options: Any) -> Any:
            return super().send(request, *arguments, **options | {"verify": True})

    client._datahub_impl._rest_client._session.mount("https://", Checking())  # noqa: SLF001
