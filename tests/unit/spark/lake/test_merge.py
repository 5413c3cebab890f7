"""What a merge says in SQL."""

from changelane.spark.lake import table_sql
from changelane.spark.lake.merge import (
    Clause,
    Merge,
    column_form,
    final_row_merge,
    full_row_merge,
    row_form,
    version_merge,
    version_replacement,
)


def sql(told: Merge) -> str:
    return table_sql.merge("t1", "v1", told)


def test_a_merge_without_values_makes_no_new_rows() -> None:
    told = Merge(("table_id", "key"), (Clause("t.deleted <= s.deleted"),))
    assert sql(told) == (
        "MERGE INTO t1 t USING v1 s ON t.`table_id` <=> s.`table_id` AND t.`key` <=> s.`key` "
        "WHEN MATCHED AND t.deleted <= s.deleted THEN DELETE"
    )


def test_a_column_is_named_in_quotes_wherever_it_stands() -> None:
    told = final_row_merge(["k`; DROP"], ["k`; DROP", "a.b"])
    assert sql(told) == (
        "MERGE INTO t1 t USING v1 s ON t.`k``; DROP` <=> s.`k``; DROP` "
        "WHEN MATCHED AND NOT s._changelane_live THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.`k``; DROP` = s.`k``; DROP`, t.`a.b` = s.`a.b`, "
        "t.`_changelane_order` = s.`_changelane_order`, "
        "t.`_changelane_columns` = s.`_changelane_columns` "
        "WHEN NOT MATCHED AND s._changelane_live THEN INSERT "
        "(`k``; DROP`, `a.b`, `_changelane_order`, `_changelane_columns`) VALUES "
        "(s.`k``; DROP`, s.`a.b`, s.`_changelane_order`, s.`_changelane_columns`)"
    )


def test_of_two_versions_the_newer_wins_and_of_two_alike_the_greater() -> None:
    told = full_row_merge(["id"], ["id", "a"])
    newer, tie, departed = told.matched
    assert newer.condition.endswith("> t._changelane_order")
    assert newer.sets is not None
    assert list(newer.sets) == ["id", "a", "_changelane_order", "_changelane_columns"]
    assert "(s.`a` IS NOT NULL AND (t.`a` IS NULL OR s.`a` > t.`a`))" in tie.condition
    assert tie.sets == {"a": "CASE WHEN (t.`a` IS NULL OR s.`a` > t.`a`) THEN s.`a` ELSE t.`a` END"}
    assert departed.sets is None
    assert list(told.values) == ["id", "a", "_changelane_order", "_changelane_columns"]


def test_a_row_of_keys_only_has_no_greater_values() -> None:
    assert len(full_row_merge(["id"], ["id"]).matched) == 2


def test_where_rows_that_are_gone_stay_each_clause_says_whether_the_row_is_there() -> None:
    for form in (row_form(keeps_deleted=True), column_form(keeps_deleted=True)):
        told = form(["id"], ["id", "a"])
        assert all("_changelane_deleted" in (clause.sets or {}) for clause in told.matched)
        assert "_changelane_deleted" in told.values
    newer, tie, gone = row_form(keeps_deleted=True)(["id"], ["id", "a"]).matched
    assert newer.condition == "s._changelane_upserted > t._changelane_order"
    assert tie.sets is not None
    assert tie.sets["_changelane_deleted"] == "s._changelane_departed >= t._changelane_order"
    assert gone.sets == {"_changelane_deleted": "true"}


def test_a_version_is_known_by_its_key_and_its_order() -> None:
    columns = ["id", "a", "_changelane_order"]
    assert version_merge(["id"], columns).keys == ("id", "_changelane_order")
    shown = version_replacement(["id"], [*columns, "_changelane_live"])
    assert shown.keys == ("id", "_changelane_order")
    assert "_changelane_live" not in shown.values
    assert [clause.sets is None for clause in shown.matched] == [True, False]
