# SPDX-License-Identifier: Apache-2.0
"""The lines between a capture process and its parent."""

import pytest

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_config import (
    EngineConfig,
    Failed,
    Heartbeat,
    Published,
    Started,
    Stopped,
    decode_config,
    decode_status,
    encode_config,
    encode_status,
)
from changelane.errors import ConfigError
from changelane.schema import TableId

CONNECTOR = ConnectorOptions(
    product="postgres",
    name="shop",
    host="h",
    database="d",
    user="u",
    password='pass"\n word',
    tables=(TableId(schema="s", name="t"),),
)
CONFIG = EngineConfig(connector=CONNECTOR, log="log", work="work", jars="jars")


def test_configuration_is_one_line() -> None:
    line = encode_config(CONFIG)
    assert line.count(b"\n") == 1
    assert decode_config(line) == CONFIG


def test_configuration_as_text_has_no_password() -> None:
    assert "pass" not in repr(CONFIG).replace("password", "")


@pytest.mark.parametrize(
    "line", [b"", b"{}", b'{"connector": "s3cret"}', encode_config(CONFIG).replace(b"512m", b"-Xs")]
)
def test_invalid_configuration_is_an_error_without_its_values(line: bytes) -> None:
    with pytest.raises(ConfigError, match="no valid configuration") as error:
        decode_config(line)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    "status",
    [
        Started(7, None),
        Published(1, 2, 2, 100, {"lsn": 1, "a": None, "b": True}, "0/1", 5, 6),
        Heartbeat("0/1", 3),
        Failed("reason", is_retriable=True),
        Stopped(1),
    ],
)
def test_status_is_one_line(status: Started | Published | Heartbeat | Failed | Stopped) -> None:
    line = encode_status(status)
    assert line.count(b"\n") == 1
    assert decode_status(line) == status


@pytest.mark.parametrize("line", [b"", b"a library prints\n", b'{"type":"unknown"}'])
def test_other_output_is_no_status(line: bytes) -> None:
    assert decode_status(line) is None
