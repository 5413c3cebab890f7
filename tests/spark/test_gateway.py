# SPDX-License-Identifier: Apache-2.0
"""py4j's gateway: which names it looks up again, and maps of texts."""

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from changelane.spark.runtime.gateway import texts_of


@pytest.fixture
def jvm(spark: SparkSession) -> Any:
    return spark._jvm


def test_names_are_looked_up_once(
    spark: SparkSession, jvm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse = jvm.java.lang.Integer.parseInt
    F.max("a")  # what PySpark looks up itself
    commands: list[str] = []
    client = type(spark.sparkContext._gateway._gateway_client)
    send = client.send_command

    def recorded(self: Any, command: str, *arguments: Any, **options: Any) -> Any:
        commands.append(command)
        return send(self, command, *arguments, **options)

    monkeypatch.setattr(client, "send_command", recorded)
    assert jvm.java.lang.Integer.parseInt is parse
    F.max("a")
    lookups = [command for command in commands if command.startswith("r\n")]
    assert commands
    assert lookups == []


def test_what_may_change_is_looked_up_again(jvm: Any) -> None:
    assert jvm.java.lang.Integer.MAX_VALUE == 2**31 - 1
    assert "MAX_VALUE" not in vars(jvm.java.lang.Integer)
    # a jar may bring this class later
    assert str(type(jvm.com.example.Later)).endswith("JavaPackage'>")
    assert "Later" not in vars(jvm.com.example)


def test_texts_of_a_map(jvm: Any) -> None:
    texts = {"a": "", "ключ": "значение", 'q"\\': "line\nnext\t\u2028\0", "emoji": "\U0001f600"}
    java_map = jvm.java.util.HashMap()
    for key, value in texts.items():
        java_map.put(key, value)
    assert texts_of(jvm, java_map) == texts
