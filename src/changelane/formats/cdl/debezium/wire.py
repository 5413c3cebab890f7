# SPDX-License-Identifier: Apache-2.0
"""The options, the wire classes and the layout of ``cdl-debezium-json``."""

from typing import Any, Final, Generic, TypeVar

import msgspec

from changelane.event import Source
from changelane.formats.cdl.json.options import LobNulls
from changelane.formats.debezium_envelope.envelope_writer import Layout
from changelane.formats.debezium_envelope.options import BeforeImage
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.schema import TableId


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``cdl-debezium-json``.

    Attributes:
        before_image: The columns with real values in before images of deletes and key changes.
        placeholder: The producer's placeholder for an unavailable value.
        heartbeat_table: Changes of this table are heartbeats; empty = no such table.
        vendor: The prefix of the vendor's semantic names of types, when they are written.
        lob_nulls: The interpretation of NULL in a column of LOB_COLUMNS.
    """

    before_image: BeforeImage = BeforeImage.AUTO
    placeholder: str | None = "__debezium_unavailable_value"
    heartbeat_table: str = "cdc_cdl.cdc_heartbeat"
    vendor: str = "com.huawei"
    lob_nulls: LobNulls = LobNulls.UNAVAILABLE


Row = TypeVar("Row")
JsonRow = dict[str, Any]


class CdlSource(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The source block."""

    version: str | None = None
    connector: str | None = None
    name: str | None = None
    ts_ms: int | None = None
    snapshot: str | None = None
    db: str | None = None
    schema: str | None = None
    table: str | None = None
    txId: int | None = None  # noqa: N815 - the name on the wire
    lsn: int | None = None


class CdlEnvelope(msgspec.Struct, Generic[Row], forbid_unknown_fields=True):
    """A row change; ``unique`` is the primary key."""

    op: str
    source: CdlSource
    message_version: str
    before: Row | None = None
    after: Row | None = None
    ts_ms: int | None = None
    message_type: str | None = None
    LOB_COLUMNS: str | None = None
    unique: dict[str, Any] | None = None
    HEARTBEAT_IDENTIFIER: str | msgspec.UnsetType | None = msgspec.UNSET


_SNAPSHOT: Final = Schema(
    "string",
    optional=True,
    name="io.debezium.data.Enum",
    version=1,
    parameters={"allowed": "true,last,false"},
    default="false",
    field="snapshot",
)
LAYOUT: Final = Layout(
    payload="before after source op! ts_ms:int64! message_version! message_type! LOB_COLUMNS"
    " unique",
    source="version! connector! name! ts_ms:int64! snapshot db! schema! table! txId:int64"
    " lsn:int64",
    source_members=(_SNAPSHOT,),
    envelope_name="{base}",
    row_names=("before", "data"),
    source_name="io.debezium.connector.postgresql.Source",
    has_key_schema=True,
    all_columns=True,
)

VERSION: Final = "2.0"
MESSAGE_TYPE: Final = "0"
DEBEZIUM_VERSION: Final = "1.4.0.Final"
ORIGIN: Final = Source(connector="cdl-debezium", version=DEBEZIUM_VERSION)
SNAPSHOTS: Final = ("true", "last")
PRODUCTS: Final = frozenset({"postgresql", "opengauss", "drs-opengauss-json"})
"""``supported only when the data source is DRS-openGauss-JSON, PostgreSQL, or openGauss``."""
INT64: Final = 1 << 63
U64: Final = 1 << 64


def base_of(table: TableId) -> str:
    """Return the name of the schema of a table's messages."""
    return ".".join(part for part in (table.schema or table.database, table.name) if part)
