# SPDX-License-Identifier: Apache-2.0
"""A connector in Kafka Connect: registered once, never changed unasked, its state in sentences."""

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
import pytest
from connect_server import ConnectServer

from changelane.capture import connect_capture, connect_cluster
from changelane.capture.captured_server import IsPassed, LogLag
from changelane.capture.connect_capture import ConnectCapture, differing_keys
from changelane.capture.connect_cluster import ConnectCluster
from changelane.capture.connector_figures import connector_lines, read_connector_figures
from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine import CaptureError
from changelane.capture.finding import Finding
from changelane.capture.log_origin import LogOrigin
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.slot_findings import SNAPSHOT
from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.postgres_source import PostgresSource
from changelane.pipeline.yaml import hide_variables
from changelane.schema import TableId

PASSWORD = "s3cret-of-the-database"
NAME = "shop-postgres"


class Shop:
    """A server whose log has the markers 1, 2, 3 ..."""

    def __init__(self) -> None:
        self.tables = ["orders"]
        self.defects: list[Finding] = []
        self.offset: EngineOffset | None = None

    def findings(self, offset: EngineOffset | None) -> list[Finding]:
        self.offset = offset
        return self.defects

    def prepare(self) -> list[str]:
        return ["CREATE PUBLICATION changelane_shop"]

    def connector_options(self, *, heartbeat_s: float) -> ConnectorOptions:
        return ConnectorOptions(
            product="postgres",
            name="shop",
            host="db",
            database="shop",
            user="me",
            password=PASSWORD,
            tables=tuple(TableId(schema="public", name=name) for name in self.tables),
            heartbeat_s=heartbeat_s,
        )

    def log_lag(self, offset: EngineOffset | None) -> LogLag:
        self.offset = offset
        return LogLag(slot="changelane_shop", lag_bytes=2048)

    def marker(self) -> IsPassed:
        return lambda offset: int(offset.get("lsn") or 0) >= 7

    def origin(self) -> LogOrigin:
        raise NotImplementedError

    def tables_with_rows(self, names: Collection[str]) -> list[str]:
        raise NotImplementedError

    def forget_position(self) -> None:
        raise NotImplementedError


@pytest.fixture
def connect() -> Iterator[ConnectServer]:
    with ConnectServer() as server:
        yield server


def source(connect: ConnectServer, **options: Any) -> PostgresSource:
    return PostgresSource(
        host="db",
        user="me",
        password=PASSWORD,
        database="shop",
        tables=["public.*"],
        bootstrap_servers="kafka:9092",
        **{"connect_url": connect.address, **options},
    )


def capture(connect: ConnectServer, shop: Shop, notes: list[str] | None = None) -> ConnectCapture:
    return ConnectCapture(source(connect), shop, notify=([] if notes is None else notes).append)


def no_wait() -> None:
    raise AssertionError("it waits for an offset")


def failed(trace: str) -> dict[str, Any]:
    task = {"id": 0, "state": "FAILED", "worker_id": "w:1", "trace": trace}
    return {"connector": {"state": "RUNNING", "worker_id": "w:1"}, "tasks": [task]}


def test_a_connector_is_registered_once_and_without_secrets(connect: ConnectServer) -> None:
    notes: list[str] = []
    shop = Shop()
    assert capture(connect, shop).problem() is None
    capture(connect, shop, notes).start()
    config = connect.configs[NAME]
    assert config["database.password"].startswith("${file:/etc/connect/secrets.properties:")
    assert PASSWORD not in str(config)
    assert any("shop-postgres.database.password" in note for note in notes)
    connect.requests.clear()
    capture(connect, shop).start()
    assert not any(request.startswith("PUT") for request in connect.requests)
    assert capture(connect, shop).problem() == ""


def test_another_configuration_is_changed_only_if_the_user_says_so(connect: ConnectServer) -> None:
    shop = Shop()
    capture(connect, shop).start()
    config = connect.configs[NAME]
    config |= {"database.hostname": "other-host", "max.queue.size": "1"}
    with pytest.raises(ConfigError) as raised:
        capture(connect, shop).start()
    text = str(raised.value)
    assert "(database.hostname, max.queue.size)" in text
    assert "--replace-connector" in text
    assert "other-host" not in text
    assert connect.configs[NAME]["max.queue.size"] == "1"
    assert capture(connect, shop).problem() == text
    capture(connect, shop).start(replaces=True)
    assert connect.configs[NAME]["max.queue.size"] != "1"


def test_a_change_is_not_judged_by_the_failure_before_it(
    connect: ConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop()
    capture(connect, shop).start()
    connect.configs[NAME]["database.hostname"] = "other-host"
    connect.states[NAME] = failed("no such host")

    def restart(_: float) -> None:  # the workers need a moment for it
        connect.states.clear()

    monkeypatch.setattr("time.sleep", restart)
    capture(connect, shop).start(replaces=True)
    connect.configs[NAME]["database.hostname"] = "other-host"
    connect.states[NAME] = failed("no such table")
    monkeypatch.undo()
    monkeypatch.setattr(connect_capture, "_CHANGE_S", 0.0)
    with pytest.raises(CaptureError, match="no such table"):
        capture(connect, shop).start(replaces=True)


def test_dropped_tables_are_no_difference_and_new_ones_are(connect: ConnectServer) -> None:
    shop = Shop()
    shop.tables = ["orders", "a,b"]
    capture(connect, shop).start()
    shop.tables = ["orders"]
    capture(connect, shop).start()
    shop.tables = ["orders", "new"]
    with pytest.raises(ConfigError, match="rows that new tables have already are in no topic"):
        capture(connect, shop).start()
    # without a list a connector captures all tables
    assert differing_keys({"table.include.list": "a"}, {}) == ["table.include.list"]
    assert differing_keys({}, {"table.include.list": "a"}) == ["table.include.list"]


def test_a_database_with_errors_is_not_registered(connect: ConnectServer) -> None:
    shop = Shop()
    lost = Finding(
        severity="error", defect="slot_missing", about="slot a", problem="b", consequence="c"
    )
    shop.defects = [msgspec.structs.replace(lost, advice=SNAPSHOT)]
    with pytest.raises(ConfigError, match="stop the connector, delete its offsets") as raised:
        capture(connect, shop).start()
    assert "--new-snapshot" not in str(raised.value)
    assert not connect.configs


def test_the_connectors_own_connection_is_no_finding(connect: ConnectServer) -> None:
    shop = Shop()
    active = {"about": "slot a", "problem": "b", "consequence": "c", "defect": "slot_active"}
    shop.defects = [Finding(severity="warning", **active)]
    assert capture(connect, shop).findings()
    capture(connect, shop).start()
    assert not capture(connect, shop).findings()
    connect.offsets[NAME] = {"lsn": 3}
    assert not capture(connect, shop).findings()
    assert shop.offset == {"lsn": 3}


def test_a_slot_that_moves_meanwhile_is_not_ahead(connect: ConnectServer) -> None:
    shop = Shop()
    ahead = Finding(
        severity="error", defect="slot_ahead", about="slot a", problem="b", consequence="c"
    )
    shop.defects = [ahead]
    assert capture(connect, shop).findings() == [ahead]

    class MovingShop(Shop):
        def findings(self, offset: EngineOffset | None) -> list[Finding]:
            connect.offsets[NAME]["lsn"] += 1
            return [ahead] if offset == {"lsn": 1} else []

    connect.configs[NAME], connect.offsets[NAME] = {}, {"lsn": 1}
    assert capture(connect, MovingShop()).findings() == []


def test_a_failed_task_is_one_line_without_secrets(connect: ConnectServer) -> None:
    shop = Shop()
    with hide_variables({"password": "${DB_PASSWORD}"}, {"DB_PASSWORD": PASSWORD}):
        pass
    connect.states[NAME] = failed(f"ConnectException: no login with {PASSWORD}\n\tat io.debezium")
    with pytest.raises(CaptureError) as raised:
        capture(connect, shop).start()
    expected = (
        "task 0 failed: ConnectException: no login with ${DB_PASSWORD}; "
        f"GET /connectors/{NAME}/status has its whole trace with the cause; restart it then "
        f"(POST /connectors/{NAME}/restart?includeTasks=true&onlyFailed=true)"
    )
    assert str(raised.value) == f"the connector {NAME}: {expected}"
    figures = read_connector_figures(source(connect), shop)
    failure = "task 0 failed at w:1: ConnectException: no login with ${DB_PASSWORD}"
    assert connector_lines(figures, label="the database") == [
        f"connector {NAME} in {connect.address}: running, {failure}",
        "the database: slot changelane_shop, 2.0 kB of the log not captured",
    ]
    notes: list[str] = []
    running = capture(connect, shop, notes)
    running.check()
    running._next_check_s = 0
    running.check()
    assert notes == [f"the connector {NAME}: {expected}"]


def test_a_connector_that_no_worker_runs_is_a_problem(connect: ConnectServer) -> None:
    capture(connect, Shop()).start()
    task = {"id": 0, "state": "UNASSIGNED", "worker_id": "w:1"}
    connect.states[NAME] = {"connector": {"state": "RUNNING", "worker_id": "w:1"}, "tasks": [task]}
    problem = capture(connect, Shop()).problem() or ""
    assert problem.startswith(f"the connector {NAME} does not run (it is running, task 0 is unass")
    connect.states[NAME]["tasks"] = []
    assert "it has no task" in (capture(connect, Shop()).problem() or "")


def test_a_paused_connector_says_how_to_resume_it(connect: ConnectServer) -> None:
    connect.states[NAME] = {"connector": {"state": "PAUSED", "worker_id": "w"}, "tasks": []}
    with pytest.raises(CaptureError, match="is paused: resume it"):
        capture(connect, Shop()).start()


def test_the_wait_ends_when_the_offset_has_the_marker(connect: ConnectServer) -> None:
    shop, notes = Shop(), list[str]()
    running = capture(connect, shop, notes)
    running.start()
    connect.offsets[NAME] = {"lsn": 6}

    def advance() -> None:
        connect.offsets[NAME]["lsn"] += 1

    running.wait_until_now(advance)
    assert connect.offsets[NAME]["lsn"] == 7


@pytest.mark.parametrize(
    "offset", [{"snapshot": "INITIAL", "snapshot_completed": False}, {"snapshot": True}]
)
def test_the_wait_includes_the_snapshot(connect: ConnectServer, offset: dict[str, Any]) -> None:
    """An idle database has no position after that at which the snapshot began."""
    running = capture(connect, Shop())
    running.start()
    later_offsets = iter([{"lsn": 7, **offset}, {"lsn": 7, **offset}, {"lsn": 7}])

    def advance() -> None:
        connect.offsets[NAME] = next(later_offsets)

    running.wait_until_now(advance)
    assert next(later_offsets, None) is None


@pytest.mark.parametrize("version", ["3.4.1", "7.4.0-ccs"])  # the second is Confluent's 3.4
def test_a_cluster_without_offsets_is_no_endless_wait(
    connect: ConnectServer, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_capture, "_PAUSE_S", 0.0)
    notes = list[str]()
    running = capture(connect, Shop(), notes)
    running.start()
    connect.version, connect.shows_offsets = version, False
    running.wait_until_now(no_wait)
    assert "older than 3.5" in notes[-1]


def test_the_wait_ends_with_a_failure(connect: ConnectServer) -> None:
    running = capture(connect, Shop())
    running.start()
    connect.states[NAME] = failed("")
    with pytest.raises(CaptureError, match="task 0 failed: without a trace"):
        running.wait_until_now()


def test_a_deleted_connector_ends_the_wait_and_is_a_note(connect: ConnectServer) -> None:
    notes = list[str]()
    running = capture(connect, Shop(), notes)
    running.start()
    checks = iter(range(2))

    def delete() -> None:
        connect.configs.clear()
        next(checks)

    with pytest.raises(CaptureError, match="does not exist any more: register it"):
        running.wait_until_now(delete)
    running.check()
    assert "does not exist any more" in notes[-1]


def test_an_unregistered_connector_is_a_line(connect: ConnectServer) -> None:
    lines = connector_lines(read_connector_figures(source(connect), Shop()), label="db")
    assert "not registered" in lines[0]


def test_kafka_connect_that_does_not_answer_is_one_sentence() -> None:
    with ConnectServer() as gone:
        address = gone.address
    cluster = ConnectCluster(address)
    with pytest.raises(UnreachableError) as raised:
        cluster.status(NAME)
    assert str(raised.value) == (f"Kafka Connect at {address} does not answer (connection refused)")
    for host in ("a..b", "x" * 64):  # no host has such a name
        with pytest.raises(UnreachableError, match="does not answer"):
            ConnectCluster(f"http://{host}:8083").status(NAME)


def test_a_login_is_sent_and_never_shown(connect: ConnectServer) -> None:
    connect.auth = "Basic bWU6czNjcmV0LWxvZ2lu"
    assert ConnectCluster(connect.address, "me:s3cret-login").config(NAME) is None
    with pytest.raises(ConfigError, match="rejects the login") as raised:
        ConnectCluster(connect.address, "me:s3cret-wrong").config(NAME)
    assert "s3cret" not in str(raised.value)
    assert "${CONNECT_AUTH}" in str(raised.value)


@pytest.mark.parametrize("status", [200, 404, 500, 302])
def test_another_service_is_an_error(connect: ConnectServer, status: int) -> None:
    connect.errors = [(status, b"<html>welcome</html>")]
    with pytest.raises(UnreachableError, match="does not answer as Kafka Connect"):
        ConnectCluster(connect.address).status(NAME)
    assert "GET /elsewhere" not in connect.requests


def test_a_rejected_connector_is_an_error_with_the_reason(connect: ConnectServer) -> None:
    shop, notes = Shop(), list[str]()
    connect.validation_errors = {"database.hostname": ["no connection\n\tat io.debezium"]}
    with pytest.raises(ConfigError, match=r"database\.hostname: no connection$"):
        capture(connect, shop, notes).start()
    assert "shop-postgres.database.password" in notes[-1]
    assert "no connection" in (capture(connect, shop).problem() or "")
    assert not connect.configs
    message = "Failed to find any class that implements Connector"
    connect.errors = [(500, msgspec.json.encode({"error_code": 500, "message": message}))]
    with pytest.raises(ConfigError, match=rf"\(HTTP status 500\): {message}"):
        ConnectCluster(connect.address).validation_errors(NAME, {"connector.class": "a.B"})


def test_a_rebalance_is_waited_for(connect: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_cluster, "_PAUSE_S", 0.0)
    rebalance = (409, b'{"error_code": 409, "message": "rebalance"}')
    connect.errors = [rebalance, rebalance]
    ConnectCluster(connect.address).set_config(NAME, {"a": "b"})
    assert connect.configs == {NAME: {"a": "b"}}
    monkeypatch.setattr(connect_cluster, "_REBALANCE_S", 0.0)
    connect.errors = [rebalance, rebalance]
    with pytest.raises(ConfigError, match="rebalance"):
        ConnectCluster(connect.address).status(NAME)
