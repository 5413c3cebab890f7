# SPDX-License-Identifier: Apache-2.0
"""Sentences of failed connections, from the messages of libpq; no password in any of them."""

import pytest

from changelane.capture.postgres.connection import PostgresConnection, connection_error
from changelane.errors import ConfigError, UnreachableError

OPTIONS = PostgresConnection(host="db", database="shop", user="reader", password="s3cret")


@pytest.mark.parametrize(
    ("message", "kind", "sentence"),
    [
        ("FATAL:  the database system is starting up", UnreachableError, "starts or stops"),
        ("FATAL:  sorry, too many clients already", UnreachableError, "no free connection"),
        ("FATAL:  the database system is in recovery mode", UnreachableError, "starts or stops"),
        ("could not translate host name", UnreachableError, "host name of db:5432 cannot be"),
        ('FATAL:  role "reader" does not exist', ConfigError, "there is no user reader at db"),
        (
            'FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "reader", SSL encryption',
            ConfigError,
            "does not allow reader to use shop",
        ),
        (
            'server certificate for "db.example" does not match host name "db"',
            ConfigError,
            "is for another host",
        ),
        (
            "FATAL:  number of requested standby connections exceeds max_wal_senders (currently 1)",
            ConfigError,
            "no free WAL sender",
        ),
        ("FATAL:  permission denied to start WAL sender", ConfigError, "privilege for replication"),
        (
            "FATAL:  Passwort s3cret ist falsch\nDETAIL:  s3cret",
            ConfigError,
            "at db:5432 fails: FATAL: Passwort *** ist falsch",
        ),
    ],
)
def test_a_message_of_libpq_gets_a_sentence(
    message: str, kind: type[ConfigError], sentence: str
) -> None:
    error = connection_error(message, OPTIONS)
    assert type(error) is kind
    assert sentence in str(error)
    assert "s3cret" not in str(error)


def test_the_text_of_a_login_has_no_password() -> None:
    assert repr(OPTIONS) == "PostgresConnection('reader@db:5432/shop')"
    assert "s3cret" not in f"{OPTIONS} {OPTIONS!r} {[OPTIONS]}"


@pytest.mark.parametrize(
    "changes", [{"host": "a,b"}, {"host": ""}, {"user": ""}, {"database": ""}, {"port": 0}]
)
def test_an_incomplete_login_is_rejected(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is"):
        PostgresConnection(**{"host": "db", "database": "shop", "user": "reader", **changes})
