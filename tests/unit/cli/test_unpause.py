"""``changelane unpause``: which paused tables are meant by a name, without Spark."""

import pytest

from changelane.cli.unpause import selected_tables
from changelane.errors import ConfigError, UnknownNameError
from changelane.schema import TableId

PAUSED = {
    "1": TableId("shop", None, "orders"),
    "2": TableId("shop", None, "users"),
    "3": TableId("bank", None, "users"),
    "4": TableId("bank", None, "users"),
    "5": TableId(None, None, "pay.orders"),
    "6": TableId(None, None, "shop"),
}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (["shop.orders"], ["1"]),
        (["orders"], ["1"]),
        (["orders", "shop.orders"], ["1"]),
        (["bank.users"], ["3", "4"]),
        (["shop.users", "orders"], ["2", "1"]),
        (["pay.orders", "shop"], ["5", "6"]),
    ],
)
def test_a_table_is_named_in_full_or_by_its_last_part(told: list[str], found: list[str]) -> None:
    assert selected_tables(PAUSED, told) == found


def test_a_name_of_several_tables_is_refused_with_them() -> None:
    with pytest.raises(ConfigError, match=r"'users' is .*: use one of bank.users, shop.users$"):
        selected_tables(PAUSED, ["users"])


def test_a_name_of_no_paused_table_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'shop.orders'"):
        selected_tables(PAUSED, ["shop.ordes"])


def test_unpause_without_paused_tables() -> None:
    with pytest.raises(ConfigError, match=r"^'nope' is not paused: no table is$"):
        selected_tables({}, ["nope"])
