# SPDX-License-Identifier: Apache-2.0
"""Who writes Canal JSON, and where they differ, as data."""

from typing import Final, Literal

import msgspec


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of one producer from Canal itself, which is the default of each field.

    Attributes:
        delete_row_in: The list that holds a deleted row; readers take the other one when this one
            is empty.
        update_swapped: ``data`` of an UPDATE is the row before, ``old`` the row after.
        ddl_type: The one type of all DDL messages; ``None`` = a type for each kind of statement.
        omit_null_keys: Keys that do not apply are left out instead of written as null.
        labels: ENUM and SET values are labels; Canal writes ordinals and bit masks.
        seconds: ``es`` and ``ts`` are seconds; ``None`` = told from their size.
    """

    delete_row_in: Literal["data", "old"] = "data"
    update_swapped: bool = False
    ddl_type: str | None = None
    omit_null_keys: bool = False
    labels: bool = False
    seconds: bool | None = None


DialectName = Literal["auto", "canal", "dts", "dts_legacy"]

DIALECTS: Final[dict[DialectName, Dialect]] = {
    "auto": Dialect(),
    "canal": Dialect(seconds=False),
    # "the value of old is data and the value of data is NULL" for instances created before
    # 2022-03-20; "To keep consistent with the open source community" the reverse since then.
    # https://www.alibabacloud.com/help/en/dts/user-guide/data-formats-of-a-kafka-cluster
    "dts": Dialect(ddl_type="DDL", omit_null_keys=True, labels=True),
    "dts_legacy": Dialect(
        delete_row_in="old",
        update_swapped=True,
        ddl_type="DDL",
        omit_null_keys=True,
        labels=True,
    ),
}

HIDDEN_COLUMNS: Final = ("__#alibaba_rds_row_id#__", "_drds_implicit_id_")
"""Columns that RDS and DRDS add to tables without a primary key."""
