# SPDX-License-Identifier: Apache-2.0
"""The file with the schemas of MySQL's and MariaDB's tables."""

from pathlib import Path

import pytest

from changelane.capture.schema_history import SchemaHistory


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"ddl":1}\n{"ddl":2}\n', b'{"ddl":1}\n{"ddl":2}\n'),
        (b'{"ddl":1}\n{"dd', b'{"ddl":1}\n'),
        (b'{"dd', b""),
        (b"", b""),
    ],
)
def test_a_record_that_a_kill_interrupted_is_deleted(
    tmp_path: Path, content: bytes, expected: bytes
) -> None:
    history = SchemaHistory(tmp_path)
    history.file.write_bytes(content)
    history.prepare("log", None, 1)
    assert history.file.read_bytes() == expected


def test_a_missing_file_is_left_to_the_engine(tmp_path: Path) -> None:
    history = SchemaHistory(tmp_path)
    history.prepare("log", None, 1)
    assert not history.file.exists()
