# SPDX-License-Identifier: Apache-2.0
"""The producers of Canal JSON, and their differences, as data."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from changelane.event import Op, Source
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.sql_types.mysql import TYPES
from changelane.types import Boolean, Decimal, Float, Integer, LogicalType, String

SOURCE: Final = Source(product="mysql", connector="canal")

NO_CODES: Final[Mapping[str, int]] = {}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """The differences of one producer from Canal. The default of each field is Canal's value.

    Attributes:
        delete_row_in: The list with a deleted row; if it is empty, the reader takes the other list.
        update_swapped: In an UPDATE, ``data`` is the before image and ``old`` the after image.
        full_old: ``old`` of an UPDATE has all columns instead of the changed ones.
        ddl_type: The one type of all DDL messages; ``None`` = a type for each kind of statement.
        omit_null_keys: Keys without a value are omitted instead of written as null.
        keys: The keys in their order; empty = Canal's fourteen in alphabetical order.
        nulls: Keys that are always null.
        labels: ENUM and SET values are labels; Canal writes ordinals and bit masks.
        json_values: Numbers in rows are JSON numbers; Canal writes text.
        plain_floats: FLOAT and DOUBLE are printed like Go's; Canal's are like Java's.
        bare_types: ``mysqlType`` has no lengths, digits and members.
        codes: ``sqlType`` by type name, where it differs from Canal's.
        promotes: ``sqlType`` of an unsigned type is always that of the wider type; Canal's depends
            on the value.
        seconds: ``es`` and ``ts`` are seconds; ``None`` = inferred from their size.
        has_commit_ts: ``_tidb`` has the commit time stamp, and there are watermark messages.
        splits_updates: An UPDATE is written as a DELETE and an INSERT.
        operations: Row operations that the producer writes.
        has_ddl: The producer writes DDL messages.
    """

    delete_row_in: Literal["data", "old"] = "data"
    update_swapped: bool = False
    full_old: bool = False
    ddl_type: str | None = None
    omit_null_keys: bool = False
    keys: tuple[str, ...] = ()
    nulls: frozenset[str] = frozenset()
    labels: bool = False
    json_values: bool = False
    plain_floats: bool = False
    bare_types: bool = False
    codes: Mapping[str, int] = NO_CODES
    promotes: bool = False
    seconds: bool | None = None
    has_commit_ts: bool = False
    splits_updates: bool = False
    operations: frozenset[Op] = frozenset(Op)
    has_ddl: bool = True

    def writes(self, key: str) -> bool:
        """Return whether messages have a key, and not always as null."""
        return (not self.keys or key in self.keys) and key not in self.nulls


DialectName = Literal[
    "auto", "canal", "dts", "dts_legacy", "ticdc", "tencent", "huawei", "inlong", "flink"
]

_CHANGES: Final = frozenset({Op.CREATE, Op.UPDATE, Op.DELETE})

DIALECTS: Final[dict[DialectName, Dialect]] = {
    "auto": Dialect(),
    "canal": Dialect(seconds=False),
    # "the value of old is data and the value of data is NULL" for instances created before
    # 2022-03-20; "To keep consistent with the open source community" the reverse since then.
    # https://www.alibabacloud.com/help/en/dts/user-guide/data-formats-of-a-kafka-cluster
    # and of sqlType: "the type LONG is converted from UNSIGNED INTEGER and BIGDECIMAL from UNSIGNED
    # LONG"
    "dts": Dialect(ddl_type="DDL", omit_null_keys=True, labels=True, promotes=True),
    "dts_legacy": Dialect(
        delete_row_in="old",
        update_swapped=True,
        keys=tuple(
            "data old database es gtid id isDdl mysqlType pkNames sql sqlType table ts type".split()
        ),
        ddl_type="DDL",
        omit_null_keys=True,
        labels=True,
        promotes=True,
    ),
    # https://docs.pingcap.com/tidb/stable/ticdc-canal-json, with enable-tidb-extension
    "ticdc": Dialect(
        full_old=True,
        keys=tuple(
            "id database table pkNames isDdl type es ts sql sqlType mysqlType data old "
            "_tidb".split()
        ),
        plain_floats=True,  # formatValue of pkg/sink/codec/canal in pingcap/ticdc
        bare_types=True,
        seconds=False,
        has_commit_ts=True,
        operations=_CHANGES,
    ),
    # https://cloud.tencent.com/document/product/597/83345
    "tencent": Dialect(
        full_old=True,
        keys=tuple(
            "data database es id isDdl mysqlType old pkNames sql sqlType table ts type".split()
        ),
        nulls=frozenset({"mysqlType", "pkNames", "sqlType"}),
        seconds=True,
        operations=_CHANGES,
    ),
    # https://support.huaweicloud.com/usermanual-drs/drs_03_0052.html
    "huawei": Dialect(
        delete_row_in="old",
        keys=tuple(
            "data database es id isDdl mysqlType old pkNames sql sqlType table ts type".split()
        ),
        ddl_type="DDL",
        codes={"datetime": 94, "binary": -2, "varbinary": -3},
        seconds=False,
    ),
    # https://github.com/apache/inlong: sort-formats, CanalJson
    "inlong": Dialect(
        keys=tuple(
            "data type pkNames database mysqlType opType es batchId sqlType updateBefore ts isDdl "
            "table".split()
        ),
        full_old=True,
        json_values=True,
        operations=_CHANGES,
        has_ddl=False,
    ),
    # "currently Flink can't combine UPDATE_BEFORE and UPDATE_AFTER into a single UPDATE message.
    # Therefore, Flink encodes UPDATE_BEFORE and UPDATE_AFTER as DELETE and INSERT Canal messages."
    # https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/table/formats/canal/
    "flink": Dialect(
        keys=("data", "type"),
        json_values=True,
        splits_updates=True,
        operations=_CHANGES,
        has_ddl=False,
    ),
}

HIDDEN_COLUMNS: Final = ("__#alibaba_rds_row_id#__", "_drds_implicit_id_")
"""Columns that RDS and DRDS add to tables without a primary key."""

_JSON_TYPES: Final[frozenset[type[LogicalType]]] = frozenset(
    {Boolean, Decimal, Float, Integer, String}
)


BOOLEANS: Final[frozenset[tuple[type[LogicalType], str]]] = frozenset({(Boolean, "tinyint")})
"""MySQL's BOOLEAN is a TINYINT(1), and its producers write a BIT(1) as a number, too."""


def carries(dialect: Dialect) -> Carries:
    """Return the capabilities of a dialect."""
    kinds = {"schema", "truncate", "control"} if dialect.has_ddl else set[str]()
    has_types = dialect.writes("mysqlType")
    untyped = _JSON_TYPES if dialect.json_values else frozenset({String})
    booleans = BOOLEANS if has_types else frozenset({(Boolean, "tinyint_text")})
    times = "s" if dialect.seconds else "ms"
    # MySQL has no NaN and no infinity of numbers
    extremes = {Extreme.TEMPORAL_TEXT} if has_types else set[Extreme]()
    return Carries(
        operations=dialect.operations,
        kinds=frozenset(kinds | ({"watermark"} if dialect.has_commit_ts else set())),
        before=True,
        absent=has_types,
        absent_means=AbsentMeans.UNCHANGED,
        schema=SchemaDetail.SOURCE_TYPES if has_types else SchemaDetail.NONE,
        types=TYPES if has_types else untyped,
        forms=booleans,
        extremes=frozenset(extremes),
        key=dialect.writes("pkNames"),
        key_change=True,
        table=frozenset({"database", "name"} if dialect.writes("table") else ()),
        positions=frozenset({"sequence"} if dialect.has_commit_ts else ()),
        shared_positions=frozenset({"sequence"}),  # all changes of a transaction share a time stamp
        stamp=SOURCE,
        source_time=times if dialect.writes("es") else "",
        process_time=times if dialect.writes("ts") else "",
        details=True,
        text_only=not dialect.json_values,
    )
