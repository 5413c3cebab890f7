# SPDX-License-Identifier: Apache-2.0
"""The data types of Qlik Replicate, which are also those of AWS DMS.

Sources: "Replicate data types" of Qlik's help
(https://help.qlik.com/en-US/replicate/Content/Replicate/Main/Endpoints/att_rep_data_types.htm) and
"Data types for AWS Database Migration Service" of the user guide
(https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Reference.DataTypes.html). Both name integers
by their bytes (INT4). Messages of DMS name them by their bits (INT32), so ``INT8`` and ``UINT8``
are read as the wider of both.
"""

from typing import Final

from changelane.types import (
    Boolean,
    Bytes,
    Date,
    Decimal,
    Float,
    Integer,
    LogicalType,
    String,
    Time,
    Timestamp,
)

TYPES: Final[dict[str, LogicalType]] = {
    "STRING": String(),
    "WSTRING": String(),
    "CLOB": String(),
    "NCLOB": String(),
    "BLOB": Bytes(),
    "BYTE": Bytes(),
    "BYTES": Bytes(),
    "BOOLEAN": Boolean(),
    "DATE": Date(),
    "TIME": Time(),
    "DATETIME": Timestamp(),
    "TIMESTAMP": Timestamp(),
    "REAL4": Float(32),
    "REAL8": Float(64),
    "INT1": Integer(8),
    "INT2": Integer(16),
    "INT4": Integer(32),
    "INT8": Integer(64),
    "INT16": Integer(16),
    "INT32": Integer(32),
    "INT64": Integer(64),
    "UINT1": Integer(8, unsigned=True),
    "UINT2": Integer(16, unsigned=True),
    "UINT4": Integer(32, unsigned=True),
    "UINT8": Integer(64, unsigned=True),
    "UINT16": Integer(16, unsigned=True),
    "UINT32": Integer(32, unsigned=True),
    "UINT64": Integer(64, unsigned=True),
}
"""Type name -> logical type, except ``NUMERIC``, which has parameters."""

_NUMERIC: Final = "NUMERIC"
_MAX: Final = "-MAX"
"""The end of the name of a type without a length."""


def logical_type(name: str, precision: int | None, scale: int | None) -> LogicalType | None:
    """Return the logical type of a type name in any case; ``None`` if it is unknown.

    >>> logical_type("NUMERIC", 10, 2), logical_type("nclob", None, None)
    (Decimal(precision=10, scale=2), String())
    """
    type_name = name.upper().removesuffix(_MAX)
    if type_name != _NUMERIC:
        return TYPES.get(type_name)
    return Decimal(precision, scale or 0) if precision else Decimal()


def type_text(name: str, length: int | None, precision: int | None, scale: int | None) -> str:
    """Return a type with its parameters; a parameter that a type does not have is 0 or missing.

    >>> type_text("STRING", 128, 0, 0), type_text("NUMERIC", None, 10, 2)
    ('STRING(128)', 'NUMERIC(10,2)')
    """
    if name.upper() == _NUMERIC:
        return f"{name}({precision},{scale or 0})" if precision else name
    return f"{name}({length})" if length else name
