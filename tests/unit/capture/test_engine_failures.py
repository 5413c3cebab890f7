# SPDX-License-Identifier: Apache-2.0
"""The reasons of failures: sentences with a fix, without secrets and without values of rows."""

import pytest

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_failures import failure_of

OPTIONS = ConnectorOptions(
    product="postgres",
    name="shop",
    host="db",
    database="orders",
    user="me",
    password="s3cret",
    slot="my_slot",
    publication="my_publication",
)


@pytest.mark.parametrize(
    ("message", "reason", "is_retriable"),
    [
        ('FATAL: password authentication failed for user "me"', "check user and password", False),
        ("Publication autocreation is disabled, please", 'PUBLICATION "my_publication"', False),
        ("ERROR: permission denied for table other", "(permission denied for table other)", False),
        ('ERROR: replication slot "x" is active for PID 3', "slot my_slot", True),
        ("requested WAL segment 01 has already been removed", "changes are lost", False),
        ("start from GTID 1-1-9, which is not in the master's binlog", "changes are lost", False),
        ("Connection to db:5432 refused. Check that", "orders at db:5432 does not answer", True),
        ("FATAL: the database system is starting up", "does not answer", True),
        ("This replication stream has been closed.", "does not answer", True),
        ("Tried to read from inactive copy", "does not answer", True),
        ("Failed to properly convert data value for 'public.t.c' of", "column public.t.c", False),
        (
            "DDL statement couldn't be parsed. See the statement 'CREATE `u` (\n a x",
            "cannot parse a statement of database orders (CREATE `u` ()",
            False,
        ),
        ('ERROR: column "c" does not exist', "alters or truncates a table", True),
        ("(conn=5) Unknown column 'c' in 'SELECT'", "alters or truncates a table", True),
        ("java.lang.OutOfMemoryError: Java heap space", "increase the option memory", False),
        ("something new", "Debezium's engine failed: something new; see engine.log", False),
    ],
)
def test_reason_names_the_fix(message: str, reason: str, is_retriable: bool) -> None:
    failure = failure_of(["the connector failed", message], OPTIONS, log_file="engine.log")
    assert reason in failure.reason
    assert failure.is_retriable is is_retriable


def test_reason_has_neither_secrets_nor_values() -> None:
    message = 'invalid s3cret input for type integer: "4711"\n  Detail: Key (id)=(4711) exists.'
    reason = failure_of([message], OPTIONS).reason
    assert reason == "Debezium's engine failed: invalid *** input for type integer: ..."


def test_reason_of_nothing_is_a_sentence() -> None:
    assert failure_of([], OPTIONS).reason == "Debezium's engine failed: no reason was given"
    long_reason = failure_of(["x" * 1000], OPTIONS).reason
    assert len(long_reason) < 600
