"""The vendor's client against a DataHub in memory, which is compared with the real service."""

import base64
import decimal
import hashlib
import hmac
import json
import logging
import random
import shutil
import ssl
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datahub", reason="pydatahub is not installed: make test-datahub has it")

from datahub_server import (
    ID,
    KEY,
    MESSAGES,
    Failed,
    Server,
    fields,
    frame,
    put_answer,
    serving,
    unframed,
)

from changelane.datahub.sdk import Sdk
from changelane.datahub.service import RANGE, Reaction, ServiceError, Shard, Topic
from changelane.datahub.shard_writer import Limits, Patience, Record, Writer
from changelane.pipeline.config import parse
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.profiles.datahub import hash_of

# the client asks for the time in a way that newer Pythons warn of
pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")

PROTOCOLS = ["protobuf", "json"]
FIELDS = [
    ("s", "STRING"),
    ("b", "BIGINT"),
    ("f", "DOUBLE"),
    ("o", "BOOLEAN"),
    ("t", "TIMESTAMP"),
    ("d", "DECIMAL"),
]
TUPLE = Topic("TUPLE", json.dumps({"fields": [{"name": n, "type": k} for n, k in FIELDS]}))


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def fixtures(corpus: Path) -> Path:
    return corpus / "datahub" / "aliyun-datahub-sdk-python_fixtures"


def sdk(server: Server, **more: Any) -> Sdk:
    sink = {
        "type": "datahub",
        "endpoint": server.endpoint,
        "project": "shop",
        "topic": "orders",
        "format": "datahub-blob",
        "access_id": ID,
        "access_key": KEY,
        "checkpoint": "state",
    }
    source = {
        "type": "kafka",
        "bootstrap_servers": "b:9092",
        "topics": "in",
        "format": "native-json",
    }
    found = parse({"name": "x", "source": source, "sink": sink | more}).sink
    assert isinstance(found, DataHubSink)
    return Sdk(found)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("compression", ["lz4", "zlib", "none"])
def test_blobs_arrive_as_they_are(server: Server, protocol: str, compression: str) -> None:
    service = sdk(server, protocol=protocol, compression=compression)
    service.create("all", Topic("BLOB"), shards=2, days=3)
    assert service.topic("all") == Topic("BLOB")
    blobs = [bytes(range(256)), b"x" * 100_000, "Zoë 𝄞".encode()]
    assert service.put("all", "1", blobs) == {}
    assert [(one.shard, one.values) for one in server.topics["all"].records] == [
        ("1", (blob,)) for blob in blobs
    ]
    told = {kind for method, path, kind in server.requests if "shards" in path and method == "POST"}
    assert told == {f"application/{'x-protobuf' if protocol == 'protobuf' else 'json'}"}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rows_arrive_as_the_texts_of_their_values(server: Server, protocol: str) -> None:
    service = sdk(server, protocol=protocol)
    service.create("rows", TUPLE, shards=1, days=7)
    assert service.topic("rows") is not None
    tenth = decimal.Decimal("12345678901234567890.10")
    rows = [
        ("", -(1 << 63), 0.1, True, 1649991610688001, tenth),
        (None, None, None, None, None, None),
        ("Zoë 𝄞", (1 << 63) - 1, 1e300, False, -62135798400000000, decimal.Decimal(0)),
    ]
    assert service.put("rows", "0", rows) == {}
    first, empty, last = (one.values for one in server.topics["rows"].records)
    assert empty == (None,) * 6
    assert first[0] == b"", "an empty text is not NULL"
    for row, found in zip((rows[0], rows[2]), (first, last), strict=True):
        texts = [one.decode() for one in found if one is not None]
        assert texts[0] == row[0]
        assert [int(texts[1]), float(texts[2]), texts[3], int(texts[4])] == [
            row[1],
            row[2],
            "true" if row[3] else "false",
            row[4],
        ]
        assert decimal.Decimal(texts[5]) == row[5]


def test_a_topic_is_created_with_its_schema_once(server: Server) -> None:
    service = sdk(server)
    assert service.topic("rows") is None
    service.create("rows", TUPLE, shards=3, days=2)
    service.create("rows", Topic("BLOB"), shards=1, days=1)
    found = service.topic("rows")
    assert found is not None
    assert found.schema is not None
    fields = json.loads(found.schema)["fields"]
    assert [(one["name"], one["type"].upper()) for one in fields] == FIELDS
    body = server.topics["rows"].body
    assert (body["ShardCount"], body["Lifecycle"], body["RecordType"]) == (3, 2, "TUPLE")
    third = RANGE // 3
    assert service.shards("rows") == [
        Shard("0", 0, third, "ACTIVE"),
        Shard("1", third, RANGE * 2 // 3, "ACTIVE"),
        Shard("2", RANGE * 2 // 3, RANGE - 1, "ACTIVE"),
    ]


def test_failed_records_are_returned_one_by_one_if_a_part_may_fail(server: Server) -> None:
    service = sdk(server, protocol="json")
    assert not service.writes_all_or_none
    service.create("all", Topic("BLOB"), shards=1, days=1)
    server.faults = lambda *_: {1: "LimitExceeded", 3: "MalformedRecord"}
    failed = service.put("all", "0", [b"a", b"b", b"c", b"d"])
    assert {n: error.reaction for n, error in failed.items()} == {
        1: Reaction.RETRY,
        3: Reaction.REJECT,
    }
    assert [one.values for one in server.topics["all"].records] == [(b"a",), (b"c",)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whatever_the_service_does_all_records_arrive_in_the_order_of_their_keys(
    server: Server, protocol: str
) -> None:
    service = sdk(server, protocol=protocol)
    service.create("all", Topic("BLOB"), shards=2, days=1)
    chance = random.Random(protocol)
    seen: Counter[str] = Counter()

    def faults(name: str, shard: str | None, count: int) -> dict[int, str]:
        fault = chance.choice(["", "", "limit", "lost", "part", "part", "down", "split"])
        if fault == "split" and seen["split"] < 3:
            active = [one for one in server.topics[name].shards if one["State"] == "ACTIVE"]
            server.split(name, chance.choice(active)["ShardId"])
        seen[fault] += 1
        match fault:
            case "limit":
                raise Failed("LimitExceeded")
            case "down":
                raise Failed("InternalServerError")
            case "lost":
                server.is_lost = True
            case "part" if shard is None:
                return {n: "LimitExceeded" for n in range(count) if chance.random() < 0.4}
        return {}

    server.faults = faults
    patience = Patience(300, clock=time.monotonic, sleep=lambda _: None, chance=lambda: 0.0)
    writer = Writer(service, "all", Limits(records=10), patience)
    for number in range(260):
        key = number % 13
        content = f"{key}:{number}".encode()
        assert not writer.add(Record(content, 9, hash_of(str(key)), str(key)))
    assert not writer.flush()
    assert min(seen[fault] for fault in ("limit", "lost", "part", "down", "split")) > 2
    found: dict[int, list[int]] = {}
    for one in server.topics["all"].records:
        key, _, number = (one.values[0] or b"").decode().partition(":")
        found.setdefault(int(key), []).append(int(number))
    for key, numbers in found.items():
        expected = list(range(key, 260, 13))
        assert list(dict.fromkeys(numbers)) == expected
        assert list(dict.fromkeys(reversed(numbers)))[::-1] == expected
    assert len(found) == 13


def test_an_answer_without_the_numbers_of_failed_records_is_fatal(server: Server) -> None:
    service = sdk(server, protocol="json")
    path = "/projects/shop/topics/all/shards"
    one = {"Index": 7, "ErrorCode": "LimitExceeded", "ErrorMessage": ""}
    for told in (
        {"FailedRecordCount": 1, "FailedRecords": []},
        {"FailedRecordCount": 1} | {"FailedRecords": [one]},
    ):
        server.answers["POST", path] = 200, json.dumps(told).encode()
        with pytest.raises(ServiceError) as caught:
            service.put("all", "0", [b"a"])
        assert caught.value.reaction is Reaction.FAIL


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("status", "body", "code", "reaction"),
    [
        (400, b'{"ErrorCode":"LimitExceeded","ErrorMessage":"row Ann"}', "LimitExceeded", "RETRY"),
        (500, b'{"ErrorCode":"InternalServerError","ErrorMessage":"x"}', None, "RETRY"),
        (502, b"<html>Ann</html>", "unknown", "RETRY"),
        (400, b'{"ErrorCode":"InvalidShardOperation","ErrorMessage":"x"}', None, "REASSIGN"),
        (400, b'{"ErrorCode":"MalformedRecord","ErrorMessage":"Ann"}', None, "REJECT"),
        (403, b'{"ErrorCode":"NoPermission","ErrorMessage":"Ann"}', "NoPermission", "FAIL"),
        (200, b"Ann", None, "FAIL"),
    ],
)
def test_rejections_are_reported_by_code_without_the_quoted_text(
    server: Server,
    caplog: pytest.LogCaptureFixture,
    *,
    protocol: str,
    status: int,
    body: bytes,
    code: str | None,
    reaction: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    service = sdk(server, protocol=protocol)
    if status == 200 and protocol == "protobuf":
        return  # an answer about one shard has no body that is read
    path = "/projects/shop/topics/all/shards" + ("/0" if protocol == "protobuf" else "")
    server.answers["POST", path] = status, body
    with pytest.raises(ServiceError) as caught:
        service.put("all", "0", [b"Ann's row"])
    assert caught.value.reaction is Reaction[reaction]
    assert code in {None, caught.value.code}
    words = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert "Ann'" not in words.replace('"Ann\'s row"', "")
    assert "row Ann" not in words
    assert "<html>" not in words
    assert KEY not in words
    assert ID not in caplog.text


def test_a_service_that_does_not_answer_is_waited_for(server: Server) -> None:
    service = sdk(server, endpoint="http://127.0.0.1:9")
    with pytest.raises(ServiceError, match="Unreachable") as caught:
        service.shards("all")
    assert caught.value.reaction is Reaction.RETRY


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_a_service_with_an_untrusted_certificate_gets_no_request(tmp_path: Path) -> None:
    told = f"req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -keyout {tmp_path}/k"
    subprocess.run(["openssl", *told.split(), "-out", f"{tmp_path}/c"], check=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "c", tmp_path / "k")
    with serving(tls) as safe, pytest.raises(ServiceError, match="WrongCertificate") as caught:
        sdk(safe, endpoint=safe.endpoint.replace("http:", "https:")).topic("all")
    assert caught.value.reaction is Reaction.FAIL
    assert not safe.requests


def test_a_wrong_key_is_refused_and_not_shown(server: Server) -> None:
    service = sdk(server, access_key="another-secret")
    with pytest.raises(ServiceError, match="Unauthorized") as caught:
        service.topic("all")
    assert caught.value.reaction is Reaction.FAIL
    assert "another-secret" not in "".join(traceback.format_exception(caught.value))


def test_a_value_that_the_client_itself_refuses_is_the_record_s_fault(server: Server) -> None:
    service = sdk(server)
    service.create("rows", TUPLE, shards=1, days=7)
    service.topic("rows")
    with pytest.raises(ServiceError, match="InvalidParameter") as caught:
        service.put("rows", "0", [("x", 1 << 63, None, None, None, None)])
    assert caught.value.reaction is Reaction.REJECT
    assert str(1 << 63) not in "".join(traceback.format_exception(caught.value))


# -- against what the real service answered


def test_the_server_of_these_tests_answers_as_the_real_one(server: Server, fixtures: Path) -> None:
    def real(name: str) -> Any:
        return json.loads((fixtures / name).read_text("utf-8"))

    def asked(method: str, path: str) -> Any:
        try:
            return json.loads(server.answer(method, path, _Signed(method, path), b"{}"))
        except Failed as error:
            from datahub_server import MESSAGES

            return {"ErrorCode": error.code, "ErrorMessage": MESSAGES[error.code]}

    service = sdk(server)
    service.create("rows", TUPLE, shards=3, days=7)
    service.create("all", Topic("BLOB"), shards=3, days=7)
    base = "/projects/shop/topics"
    for name, kind in (("rows", "tuple"), ("all", "blob")):
        told = real(f"projects.success.topics.{kind}.json")
        assert asked("GET", f"{base}/{name}").keys() == told.keys()
    shards, found = (
        real("projects.success.topics.success.shards.json"),
        asked("GET", f"{base}/rows/shards"),
    )
    assert found.keys() == shards.keys()
    for mine, theirs in zip(found["Shards"], shards["Shards"][:3], strict=True):
        assert mine.keys() <= theirs.keys()
        for name in ("ShardId", "BeginHashKey", "EndHashKey", "LeftShardId"):
            assert mine[name] == theirs[name]
    assert asked("GET", f"{base}/none") == real("projects.valid.topics.unexisted.json")
    for name, code in (
        ("invalid_state", "InvalidShardOperation"),
        ("limit_exceeded", "LimitExceeded"),
        ("malformed", "MalformedRecord"),
    ):
        told = {"ErrorCode": code, "ErrorMessage": MESSAGES[code]}
        assert told == real(f"projects.put.topics.{name}.shards.json")
    success = (fixtures / "projects.put.topics.success.shards.bin").read_bytes()
    assert put_answer("application/x-protobuf", {}) == success
    told = real("projects.put.topics.success.shards.json")
    assert json.loads(put_answer("application/json", {})) == told


class _Signed(dict[str, str]):
    """The headers of a request that is signed rightly."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__({"Content-Type": "application/json", "Date": "x"})
        text = f"{method}\napplication/json\nx\n{path}"
        digest = hmac.new(KEY.encode(), text.encode(), hashlib.sha1).digest()
        self["Authorization"] = f"DATAHUB {ID}:{base64.b64encode(digest).decode()}"


@pytest.mark.parametrize("name", ["tuple", "blob"])
def test_frames_and_fields_are_those_of_the_real_service(fixtures: Path, name: str) -> None:
    told = (fixtures / f"projects.get.topics.{name}.shards.0.bin").read_bytes()
    body = unframed(told)
    assert frame(body) == told
    assert {1, 2, 4} <= {number for number, _ in fields(body)}


def test_what_the_real_service_answered_is_understood(server: Server, fixtures: Path) -> None:
    def answering(name: str, path: str, status: int = 200) -> None:
        server.answers["GET", f"/projects/shop/topics/{path}"] = (
            status,
            (fixtures / name).read_bytes(),
        )

    service = sdk(server)
    answering("projects.success.topics.tuple.json", "rows")
    found = service.topic("rows")
    assert found is not None
    assert found.kind == "TUPLE"
    told = [(one["name"], one["type"].upper()) for one in json.loads(found.schema or "")["fields"]]
    assert told[0] == ("bigint_field", "BIGINT")
    assert told[4] == ("event_time1", "TIMESTAMP")
    answering("projects.success.topics.blob.json", "all")
    assert service.topic("all") == Topic("BLOB")
    answering("projects.valid.topics.unexisted.json", "none", 404)
    assert service.topic("none") is None
    answering("projects.unexisted.topics.valid.json", "no", 404)
    with pytest.raises(ServiceError, match="NoSuchProject"):
        service.topic("no")
    answering("projects.success.topics.success.shards.json", "all/shards")
    shards = service.shards("all")
    assert [(one.id, one.state) for one in shards] == [
        ("0", "ACTIVE"),
        ("1", "CLOSED"),
        ("2", "OPENING"),
        ("3", "CLOSING"),
    ]
    assert [one.begin for one in shards[:3]] == [
        0,
        0x5 * (RANGE - 1) // 15,
        0xA * (RANGE - 1) // 15,
    ]
    assert shards[2].end == RANGE - 1


def test_records_come_back_as_they_were_written(server: Server) -> None:
    service = sdk(server, protocol="json")
    service.create("rows", TUPLE, shards=1, days=7)
    service.create("all", Topic("BLOB"), shards=1, days=7)
    assert service.topic("rows") is not None
    assert service.topic("all") == Topic("BLOB")
    assert service.put("all", "0", [bytes(range(256)), b"two"]) == {}
    found = service.read("all", "0", 0, 10)
    assert [(one.sequence, one.content) for one in found] == [(0, bytes(range(256))), (1, b"two")]
    row = ("Zoë", -(1 << 63), 0.1, True, 1649991610688001, decimal.Decimal("1.10"))
    assert service.put("rows", "0", [row, (None,) * 6, ("", *row[1:])]) == {}
    server.topics["rows"].records[0].attributes["who"] = "me"
    one, two, three = service.read("rows", "0", 0, 10)
    assert isinstance(one.content, tuple)
    assert [*one.content[:2], *one.content[3:]] == [
        "Zoë",
        "-9223372036854775808",
        "true",
        "1649991610688001",
        "1.10",
    ]
    assert float(one.content[2] or "") == 0.1
    assert one.attributes == (("who", "me"),)
    assert two.content == (None,) * 6
    assert three.content[0] == ""
    assert [each.sequence for each in service.read("rows", "0", 1, 1)] == [1]
    assert service.read("rows", "0", 3, 1) == []
    assert (
        service.end_sequence("rows", "0", "OLDEST"),
        service.end_sequence("rows", "0", "LATEST"),
    ) == (0, 2)
    with pytest.raises(ServiceError, match="SeekOutOfRange"):
        service.read("rows", "0", 99, 1)
    blobs = sdk(server, protocol="protobuf").read("all", "0", 0, 10)
    assert [one.content for one in blobs] == [one.content for one in found]
    server.split("rows", "0")
    assert [shard.parents for shard in service.shards("rows")] == [(), ("0",), ("0",)]
