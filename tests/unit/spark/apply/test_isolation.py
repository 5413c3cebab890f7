"""Tables fail alone, whatever the code is that fails."""

from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JJavaError

from changelane.spark.apply.isolation import Isolation
from changelane.spark.lake.interface import retry_conflicts
from changelane.spark.rows.batch_stats import BatchReport, TableBatch

SHOP = '["shop",null,"orders"]'


class JavaError(Py4JJavaError):
    """An error of a catalog's that no JVM has."""

    def __init__(self, words: str) -> None:
        Exception.__init__(self, words)

    def __str__(self) -> str:
        return str(self.args[0])


def test_a_catalog_that_refuses_one_table_leaves_the_others_alone() -> None:
    report = BatchReport(0)
    alone = Isolation(report, isolated=True)
    words = "org.apache.iceberg.hive.RuntimeMetaException: no column 'Müller'\n\tat a.b.C(D.java:1)"
    with alone.of(TableBatch(SHOP)):
        raise JavaError(words)
    assert alone.failed == {SHOP}
    expected = "org.apache.iceberg.hive.RuntimeMetaException: no column '...'"
    assert report.failed == {SHOP: expected}


def test_what_is_not_isolated_or_no_statement_fails_all() -> None:
    errors: list[tuple[bool, Exception]] = [
        (False, JavaError("x")),
        (True, Py4JError("the JVM is gone")),
        (True, ValueError("ours")),
    ]
    for isolated, error in errors:
        with (
            pytest.raises(type(error)),
            Isolation(BatchReport(0), isolated=isolated).of(TableBatch(SHOP)),
        ):
            raise error


def test_a_commit_that_met_another_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    errors: list[Any] = [
        JavaError("org.apache.iceberg.exceptions.CommitFailedException: metadata has changed"),
        JavaError("org.apache.iceberg.exceptions.ValidationException: a file came between"),
    ]

    def write() -> None:
        if errors:
            raise errors.pop()

    retry_conflicts(write)
    assert not errors
    with pytest.raises(JavaError):
        retry_conflicts(lambda: (_ for _ in ()).throw(JavaError("RuntimeMetaException: away")))
