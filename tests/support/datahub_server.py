"""A small DataHub in memory with the protocol of the service over HTTP: REST and protobuf.

It uses no code of the client: requests are authenticated, decompressed and decoded here by the
rules of the protocol (A 4.5 of the format notes; ``datahub_record_proto`` for the numbers of
fields). ``test_datahub_sdk`` compares its answers with those of the real service.
"""

import base64
import hashlib
import hmac
import json
import ssl
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

ID, KEY = "an-access-id", "a-secret-access-key"

MESSAGES = {
    "InvalidShardOperation": "The specified shard is not active.",
    "LimitExceeded": "The query rate or throughput rate is exceeded.",
    "MalformedRecord": "The record is not well-formed.",
    "NoSuchTopic": "The specified topic name does not exist.",
    "SeekOutOfRange": "The sequence is out of range.",
    "NoSuchProject": "The specified project name does not exist.",
    "TopicAlreadyExist": "The specified topic already exists.",
    "Unauthorized": "The signature does not match.",
}
STATUS = {"NoSuchTopic": 404, "NoSuchProject": 404, "Unauthorized": 401, "InternalServerError": 500}


class Failed(Exception):  # noqa: N818 - an answer
    """Makes the answer an error."""

    def __init__(self, code: str, status: int | None = None) -> None:
        super().__init__(code)
        self.code = code
        self.status = STATUS.get(code, 400) if status is None else status


class Put(NamedTuple):
    """A stored record: values are bytes or ``None`` for NULL."""

    shard: str
    values: tuple[bytes | None, ...]
    attributes: dict[str, str]


class TopicState:
    """A topic."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body
        self.fields = json.loads(body.get("RecordSchema", '{"fields":[]}'))["fields"]
        count = body["ShardCount"]
        ends = [*((1 << 128) * n // count for n in range(1, count)), (1 << 128) - 1]
        self.shards = [
            {"ShardId": str(n), "BeginHashKey": hex32(begin), "EndHashKey": hex32(end)}
            | {"State": "ACTIVE", "ParentShardIds": []}
            for n, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
        ]
        for n, shard in enumerate(self.shards):
            shard["LeftShardId"] = str(n - 1) if n else "4294967295"
            shard["RightShardId"] = str(n + 1) if n + 1 < count else "4294967295"
        self.records: list[Put] = []
        self.expired: dict[str, int] = {}


class Server:
    """The state of the service, and its faults.

    Attributes:
        faults: Called with each ``put`` (topic, shard or ``None``, count of records); it may raise,
            and returns the numbers of rejected records with their error codes.
        answers: Fixed answers, by method and path: status and body.
        requests: Method, path and content type of each request.
        is_lost: Drop the next answer; a fault may set it.
        latest_is_last: ``LATEST`` is the number of the last record, or else of the next one.
        max_read: Records of one answer.
    """

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.topics: dict[str, TopicState] = {}
        self.lock = threading.Lock()
        self.faults: Callable[[str, str | None, int], dict[int, str]] = lambda *_: {}
        self.answers: dict[tuple[str, str], tuple[int, bytes]] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.is_lost = False
        self.latest_is_last = True
        self.max_read = 1000

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> bytes:
        kind = headers.get("Content-Type", "")
        self.requests.append((method, path, kind))
        _check_signature(method, path, headers)
        match method, [part for part in path.split("/") if part]:
            case "GET", ["projects", "shop", "topics", name]:
                topic = self._topic(name)
                return _json({**topic.body, "CreateTime": 1, "LastModifyTime": 1})
            case "POST", ["projects", "shop", "topics", name]:
                if name in self.topics:
                    raise Failed("TopicAlreadyExist")
                self.topics[name] = TopicState(json.loads(body))
                return b""
            case "GET", ["projects", "shop", "topics", name, "shards"]:
                shards = self._topic(name).shards
                return _json({"Protocol": "http1.1", "Interval": 300000, "Shards": shards})
            case "POST", ["projects", "shop", "topics", name, "shards"]:
                failed = self._put(name, None, decoded(kind, body))
                return put_answer(kind, failed)
            case "POST", ["projects", "shop", "topics", name, "shards", shard] if query := read_of(
                kind, headers, body
            ):
                return self._read(self._topic(name), name, (shard, kind), query)
            case "POST", ["projects", "shop", "topics", name, "shards", shard]:
                if self._put(name, shard, decoded(kind, body)):
                    raise Failed("MalformedRecord")
                return frame(b"")
        raise Failed("NoSuchProject")

    def _topic(self, name: str) -> TopicState:
        if name not in self.topics:
            raise Failed("NoSuchTopic")
        return self.topics[name]

    def _put(self, name: str, shard: str | None, records: list[Put]) -> dict[int, str]:
        topic = self._topic(name)
        failed = dict(self.faults(name, shard, len(records)))
        for number, record in enumerate(records):
            if number in failed:
                continue
            target = shard if shard is not None else record.shard
            matching = [one for one in topic.shards if one["ShardId"] == target]
            if not matching or matching[0]["State"] != "ACTIVE":
                failed[number] = "InvalidShardOperation"
                if shard is not None:
                    raise Failed("InvalidShardOperation")
            elif not _is_well_formed(topic, record):
                failed[number] = "MalformedRecord"
        if shard is not None and failed:
            return failed
        for number, record in enumerate(records):
            if number not in failed:
                target = shard if shard is not None else record.shard
                topic.records.append(record._replace(shard=target))
        return failed

    def _read(
        self, topic: TopicState, name: str, shard_kind: tuple[str, str], query: tuple[str, Any, int]
    ) -> bytes:
        """Answer with a cursor, or with the records from one on."""
        (shard, kind), (action, where, limit) = shard_kind, query
        if shard not in {one["ShardId"] for one in topic.shards}:
            raise Failed("NoSuchShard")
        self.faults(name, shard, 0)
        stored = [one for one in topic.records if one.shard == shard]
        oldest = topic.expired.get(shard, 0)
        if action == "cursor":
            newest = (
                max(oldest, len(stored) - 1) if self.latest_is_last else max(oldest, len(stored))
            )
            at = {"OLDEST": oldest, "LATEST": newest}.get(where[0], where[1])
            if not oldest <= at <= len(stored):
                raise Failed("SeekOutOfRange")
            return _json({"Cursor": f"{at:032X}", "RecordTime": 0, "Sequence": at})
        first = int(where, 16)
        records = list(enumerate(stored))[first : first + min(limit, self.max_read)]
        if first < oldest:
            raise Failed("InvalidCursor")
        return records_answer(kind, topic, records, first)

    def split(self, name: str, shard: str) -> None:
        """Split a shard in the middle."""
        topic = self.topics[name]
        old = next(one for one in topic.shards if one["ShardId"] == shard)
        begin, end = int(old["BeginHashKey"], 16), int(old["EndHashKey"], 16)
        middle = hex32((begin + end) // 2)
        old["State"] = "CLOSED"
        number = len(topic.shards)
        halves = ((hex32(begin), middle), (middle, hex32(end)))
        topic.shards += [
            old
            | {"ShardId": str(number + n), "BeginHashKey": b, "EndHashKey": e}
            | {"State": "ACTIVE", "ParentShardIds": [shard]}
            for n, (b, e) in enumerate(halves)
        ]


def _is_well_formed(topic: TopicState, record: Put) -> bool:
    if not topic.fields:
        return len(record.values) == 1 and bool(record.values[0])
    if len(record.values) != len(topic.fields):
        return False
    for field, value in zip(topic.fields, record.values, strict=True):
        if value is None:
            continue
        try:
            match field["type"].upper():
                case "BIGINT" | "TIMESTAMP":
                    assert -(1 << 63) <= int(value) < 1 << 63
                case "DOUBLE" | "DECIMAL":
                    float(value)
                case "BOOLEAN":
                    assert value in {b"true", b"false"}
        except (ValueError, AssertionError):
            return False
    return True


def hex32(number: int) -> str:
    return f"{number:032X}"


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


def _check_signature(method: str, path: str, headers: Any) -> None:
    own = sorted((k.lower(), v) for k, v in headers.items() if k.lower().startswith("x-datahub-"))
    lines = [method, headers["Content-Type"], headers["Date"], *(f"{k}:{v}" for k, v in own), path]
    digest = hmac.new(KEY.encode(), "\n".join(lines).encode(), hashlib.sha1).digest()
    if headers["Authorization"] != f"DATAHUB {ID}:{base64.b64encode(digest).decode()}":
        raise Failed("Unauthorized")


# -- records in requests and answers


def decoded(kind: str, body: bytes) -> list[Put]:
    """Return the records of a ``put`` request."""
    if kind == "application/x-protobuf":
        return [_entry(entry) for number, entry in fields(unframed(body)) if number == 1]
    request = json.loads(body)
    assert request["Action"] == "pub"
    return [
        Put(one["ShardId"], _json_values(one["Data"]), one.get("Attributes", {}))
        for one in request["Records"]
    ]


def read_of(kind: str, headers: Any, body: bytes) -> tuple[str, Any, int] | None:
    """Return action, cursor and limit of a request to read; ``None`` for a ``put``."""
    if kind == "application/x-protobuf":
        if headers.get("x-datahub-request-action") != "sub":
            return None
        numbered = dict(fields(unframed(body)))
        return "sub", numbered[1].decode(), numbered.get(2, 0)
    request = json.loads(body)
    if request["Action"] == "cursor":
        return "cursor", (request["Type"], request.get("Sequence")), 0
    return ("sub", request["Cursor"], request["Limit"]) if request["Action"] == "sub" else None


def records_answer(kind: str, topic: TopicState, records: list[tuple[int, Put]], at: int) -> bytes:
    """Return the answer with records and their numbers."""
    after = f"{at + len(records):032X}"
    if kind != "application/x-protobuf":
        listed = [
            {"SystemTime": 1, "Sequence": number, "NextCursor": f"{number + 1:032X}"}
            | {"Data": _data(topic, one), "Attributes": one.attributes}
            for number, one in records
        ]
        answer = {"NextCursor": after, "RecordCount": len(listed), "StartSeq": at}
        answer["Records"] = listed
        return _json(answer)
    parts = [text(1, after), varint(2 << 3) + varint(len(records)), varint(3 << 3) + varint(at)]
    for number, one in records:
        values = [b"" if v is None else message(1, v) for v in one.values]
        pairs = [message(1, text(1, k) + text(2, v)) for k, v in one.attributes.items()]
        entry = text(5, f"{number + 1:032X}") + varint(6 << 3) + varint(number)
        entry += varint(7 << 3) + varint(1) + message(8, b"".join(pairs))
        entry += message(9, b"".join(message(1, value) for value in values))
        parts.append(message(4, entry))
    return frame(b"".join(parts))


def _data(topic: TopicState, one: Put) -> Any:
    if not topic.fields:
        return base64.b64encode(one.values[0] or b"").decode()
    return [None if value is None else value.decode() for value in one.values]


def _json_values(data: str | list[str | None]) -> tuple[bytes | None, ...]:
    if isinstance(data, str):
        return (base64.b64decode(data),)
    return tuple(None if one is None else one.encode() for one in data)


def _entry(body: bytes) -> Put:
    numbered = dict(fields(body))
    values = tuple(
        dict(fields(field)).get(1) for number, field in fields(numbered[9]) if number == 1
    )
    pairs = [dict(fields(pair)) for number, pair in fields(numbered.get(8, b"")) if number == 1]
    attributes = {pair[1].decode(): pair[2].decode() for pair in pairs}
    return Put(numbered.get(1, b"").decode(), values, attributes)


def put_answer(kind: str, failed: dict[int, str]) -> bytes:
    """Return the answer to a ``put``: the failed records."""
    if kind == "application/x-protobuf":
        parts = [varint(1 << 3) + varint(len(failed))]
        for index, code in failed.items():
            one = varint(1 << 3) + varint(index) + text(2, code) + text(3, MESSAGES[code])
            parts.append(varint(2 << 3 | 2) + varint(len(one)) + one)
        return frame(b"".join(parts))
    listed = [{"Index": n, "ErrorCode": c, "ErrorMessage": MESSAGES[c]} for n, c in failed.items()]
    return _json({"FailedRecordCount": len(listed), "FailedRecords": listed})


# -- protobuf, and the frame around it


def fields(body: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a message; a value is a number or bytes."""
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        value, at = _varint(body, at)
        if tag & 7 == 2:
            yield tag >> 3, body[at : at + value]
            at += value
        else:
            assert tag & 7 == 0
            yield tag >> 3, value


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def text(number: int, value: str) -> bytes:
    encoded = value.encode()
    return varint(number << 3 | 2) + varint(len(encoded)) + encoded


def message(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # noqa: PLW2901
        table.append(byte)
    return table


_CRC = _crc_table()


def crc32c(body: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in body:
        value = value >> 8 ^ _CRC[(value ^ byte) & 255]
    return value ^ 0xFFFFFFFF


def frame(body: bytes) -> bytes:
    return b"DHUB" + struct.pack(">II", crc32c(body), len(body)) + body


def unframed(framed: bytes) -> bytes:
    crc, size = struct.unpack(">II", framed[4:12])
    body = framed[12:]
    if framed[:4] != b"DHUB" or size != len(body) or crc != crc32c(body):
        raise Failed("InvalidParameter")
    return body


# -- HTTP


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        match self.headers.get("Content-Encoding"):
            case "lz4":
                import lz4.block

                size = int(self.headers["x-datahub-content-raw-size"])
                body = lz4.block.decompress(body, uncompressed_size=size)
            case "zlib" | "deflate":
                body = zlib.decompress(body)
        path = unquote(urlsplit(self.path).path)
        status = 200
        with self.state.lock:
            if (self.command, path) in self.state.answers:
                status, content = self.state.answers[self.command, path]
            else:
                try:
                    content = self.state.answer(self.command, path, self.headers, body)
                except Failed as error:
                    message = MESSAGES.get(error.code, "It failed.")
                    content = _json({"ErrorCode": error.code, "ErrorMessage": message})
                    status = error.status
            is_lost, self.state.is_lost = self.state.is_lost, False
        if is_lost:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("x-datahub-request-id", "1")
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = _handle  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class _Http(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Log nothing: clients may disconnect at any time."""


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Run a server until the end of the block."""
    handler = type("Handler", (_Handler,), {})
    with _Http(("127.0.0.1", 0), handler) as http:
        if tls is not None:
            http.socket = tls.wrap_socket(http.socket, server_side=True)
        http.daemon_threads = True
        handler.state = Server(http.server_address[1])  # type: ignore[attr-defined]
        thread = threading.Thread(target=http.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield handler.state  # type: ignore[attr-defined]
        finally:
            http.shutdown()
            thread.join()
