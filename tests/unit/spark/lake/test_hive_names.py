"""Names of tables in Hive's metastore."""

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane.spark.lake.hive_names import MAX_LENGTH, to_hive
from changelane.spark.runtime.sql import folder_name

PART: Final = st.one_of(
    st.text("aZ09_.x-~É店` ", max_size=10),
    st.lists(st.sampled_from(["_x41_", "__", "_", "a", "x", "41", "É"]), max_size=5).map("".join),
)
FOLDER: Final = st.builds(
    folder_name, st.none() | PART, st.none() | PART, PART, generation=st.sampled_from(["", "2"])
)
# more than the names of folders: what could be taken for a part of another
LIKELY: Final = st.text("aA0_.x~-C3E9p", max_size=14)


def from_hive(name: str) -> str:
    """Return the name that became this one."""

    def read(match: re.Match[str]) -> str:
        if match[0] == "__":
            return "."
        told = bytes.fromhex(match[1])
        return "".join(chr(one) if one < 0x80 else f"~{one:02X}" for one in told)

    return re.sub("__|_x([0-9a-f]+)_", read, name)


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("shop.orders", "shop__orders"),
        ("Shop.orders", "_x53_hop__orders"),
        ("shop__orders", "shop_x5f5f_orders"),
        ("shop_.orders", "shop_x5f___orders"),
        ("shop._orders", "shop___x5f_orders"),
        ("a_x41_b", "a_x5f_x41_b"),
        (folder_name("shop", None, "../é`"), "shop___x7e_2_x457e_2_x457e_2_x46c3a97e_60"),
        (folder_name("db", None, "订单"), "db___xe8aea2e58d95_"),
    ],
)
def test_a_table_has_a_name_that_the_metastore_takes(name: str, there: str) -> None:
    assert to_hive(name) == there


@given(FOLDER | LIKELY)
def test_every_name_can_be_told_from_all_others(name: str) -> None:
    found = to_hive(name)
    assert re.fullmatch("[a-z0-9_]*", found)
    assert len(found) == MAX_LENGTH or from_hive(found) == name


def test_long_names_stay_apart() -> None:
    names = [
        "a" * (MAX_LENGTH - 1),
        "a" * MAX_LENGTH,
        "a" * MAX_LENGTH + "b",
        "A" * 62,
        "A" * 63,
        "A" * 64,
    ]
    found = [to_hive(name) for name in names]
    assert [len(name) for name in found] == [
        MAX_LENGTH - 1,
        MAX_LENGTH,
        MAX_LENGTH,
        MAX_LENGTH - 1,
        MAX_LENGTH,
        MAX_LENGTH,
    ]
    assert len(set(found)) == len(names)
