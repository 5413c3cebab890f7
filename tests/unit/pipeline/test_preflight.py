# SPDX-License-Identifier: Apache-2.0
"""What is certain to fail is seen before Spark starts, and nothing is written for it."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.config import Pipeline, parse
from changelane.pipeline.preflight import check_before_spark, check_broker


@pytest.fixture
def listening() -> Iterator[int]:
    """A port that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def silent() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def pipeline(folder: Path, source: dict[str, Any] | None = None, **options: Any) -> Pipeline:
    files = {"type": "files", "path": str(folder / "in"), "format": "native-json"}
    sink = {"type": "delta", "path": str(folder / "lake")}
    return parse({"name": "x", "source": source or files, "sink": sink, "options": options})


def kafka(servers: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "kafka",
        "bootstrap_servers": servers,
        "topics": "a",
        "format": "native-json",
    } | more


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the folder .*in does not exist$"):
        check_before_spark(pipeline(tmp_path))
    (tmp_path / "in").mkdir()
    check_before_spark(pipeline(tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == ["in"]


def test_paths_of_other_file_systems_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("s3a://lake/in", "hdfs:/lake/in"):
        source = {"type": "files", "path": path, "format": "native-json"}
        check_before_spark(pipeline(tmp_path, source))
    check_before_spark(
        pipeline(tmp_path, spark_options={"spark.hadoop.fs.defaultFS": "hdfs://name"})
    )
    check_before_spark(pipeline(tmp_path), master="yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    check_before_spark(pipeline(tmp_path))


def test_a_sink_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "lake").write_text("")
    with pytest.raises(ConfigError, match=r"lake cannot be created: .*lake is a file"):
        check_before_spark(pipeline(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_sink_in_a_folder_of_others_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="no permission to write to"):
        check_before_spark(pipeline(tmp_path))


def test_a_broker_that_is_not_there_is_named(tmp_path: Path, silent: int) -> None:
    servers = f"127.0.0.1:{silent},localhost:{silent}"
    with pytest.raises(UnreachableError, match=f"the broker at {servers} does not answer"):
        check_before_spark(pipeline(tmp_path, kafka(servers)))
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_host_name_is_reported_as_such() -> None:
    def answer(error: int) -> Callable[..., Any]:
        def create_connection(*_arguments: Any) -> None:
            raise socket.gaierror(error, "no name")

        return create_connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", answer(socket.EAI_NONAME))
        with pytest.raises(UnreachableError, match="cannot be resolved"):
            check_broker("broker.invalid:9092")
        # a name server that is not there now: the run waits for it
        patch.setattr(socket, "create_connection", answer(socket.EAI_AGAIN))
        check_broker("broker.invalid:9092")


def test_brokers_behind_a_proxy_of_the_jvm_are_left_to_spark(tmp_path: Path, silent: int) -> None:
    options = {"spark.driver.extraJavaOptions": "-DsocksProxyHost=proxy"}
    check_before_spark(pipeline(tmp_path, kafka(f"127.0.0.1:{silent}"), spark_options=options))


def test_one_broker_of_a_list_is_enough(silent: int, listening: int) -> None:
    check_broker(f"127.0.0.1:{silent}, PLAINTEXT://127.0.0.1:{listening},")


@pytest.mark.parametrize("servers", ["broker", "broker:", "broker:0", "broker:65536", "a:1,b"])
def test_an_address_without_a_port_is_refused(servers: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        check_broker(servers)


def test_the_address_of_ipv6_is_one(silent: int) -> None:
    with pytest.raises(UnreachableError):
        check_broker(f"[::1]:{silent}")


def test_the_command_ends_before_spark_starts(tmp_path: Path, silent: int) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: x\nsource: {{type: kafka, bootstrap_servers: '127.0.0.1:{silent}', topics: a, "
        "format: native-json}\nsink: {type: delta, path: lake}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "changelane", "run", file],
        env=os.environ | {"JAVA_HOME": "/nowhere"},  # Spark could not start
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "does not answer (connection refused)" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["pipeline.yaml"]
