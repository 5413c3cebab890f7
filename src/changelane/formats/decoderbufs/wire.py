# SPDX-License-Identifier: Apache-2.0
"""The messages of postgres-decoderbufs: ``pg_logicaldec.proto``, with the producer's names."""

from typing import Final

from changelane.formats.contract.protobuf import Kind, Table

_ONE, _MANY = False, True

ROW: Final = Table(
    (1, "transaction_id", Kind.INTEGER, _ONE),
    (2, "commit_time", Kind.INTEGER, _ONE),
    (3, "table", Kind.TEXT, _ONE),
    (4, "op", Kind.INTEGER, _ONE),
    (5, "new_tuple", Kind.BYTES, _MANY),
    (6, "old_tuple", Kind.BYTES, _MANY),
    (7, "new_typeinfo", Kind.BYTES, _MANY),
)
DATUM: Final = Table(
    (1, "column_name", Kind.TEXT, _ONE),
    (2, "column_type", Kind.INTEGER, _ONE),
    (3, "datum_int32", Kind.INTEGER, _ONE),
    (4, "datum_int64", Kind.INTEGER, _ONE),
    (5, "datum_float", Kind.FLOAT, _ONE),
    (6, "datum_double", Kind.DOUBLE, _ONE),
    (7, "datum_bool", Kind.BOOLEAN, _ONE),
    (8, "datum_string", Kind.TEXT, _ONE),
    (9, "datum_bytes", Kind.BYTES, _ONE),
    (10, "datum_point", Kind.BYTES, _ONE),
    (11, "datum_missing", Kind.BOOLEAN, _ONE),
)
POINT: Final = Table((1, "x", Kind.DOUBLE, _ONE), (2, "y", Kind.DOUBLE, _ONE))
TYPE_INFO: Final = Table(
    (1, "modifier", Kind.TEXT, _ONE), (2, "value_optional", Kind.BOOLEAN, _ONE)
)

INSERT, UPDATE, DELETE, BEGIN, COMMIT = range(5)
"""The values of ``op``."""
MISSING: Final = "datum_missing"
DATA: Final = tuple(
    f"datum_{name}" for name in "int32 int64 float double bool string bytes point".split()
)
"""The fields of which a datum has one."""
