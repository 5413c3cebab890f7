# SPDX-License-Identifier: Apache-2.0
"""The options of ``ogg-json``."""

from enum import StrEnum

import msgspec


class Model(StrEnum):
    """The model of messages, ``gg.handler.name.format``."""

    AUTO = "auto"
    """The operation model, if a message has ``before`` or ``after``, else the row model."""
    OPERATION = "operation"
    """``json``: the images are the objects ``before`` and ``after``."""
    ROW = "row"
    """``json_row``: the columns of one image are fields of the message."""


class RowImage(StrEnum):
    """The columns in the trail."""

    AUTO = "auto"
    """Unknown: compressed updates have the key and the changed columns."""
    FULL = "full"
    """All columns, before and after an update."""


class Order(StrEnum):
    """The order of the changes."""

    POS = "pos"
    """``pos``: the place in the trail."""
    SCN = "scn"
    """The token ``L``: the SCN in Oracle's log."""
    OFFSET = "offset"
    """The offset in the partition."""


class MessageKey(StrEnum):
    """The written message key, ``keyMappingTemplate``."""

    PRIMARY_KEYS = "primary_keys"
    """``${primaryKeys}``: the values of the key, joined by underscores."""
    NONE = "none"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``ogg-json``.

    Attributes:
        model: The model of the messages that are read; the operation model is written.
        row_image: The columns in the images of an update.
        insert_op_key: ``insertOpKey``, the ``op_type`` of an insert.
        update_op_key: ``updateOpKey``.
        delete_op_key: ``deleteOpKey``.
        truncate_op_key: ``truncateOpKey``.
        pk_update_op_key: ``pkUpdateOpKey``, the ``op_type`` of a change of the key; empty = that of
            an update.
        time_zone: The zone of ``op_ts``: a name of the time zone database or an offset such as
            ``+08:00``. Empty = unknown: then ``op_ts`` is a detail, and no source time.
        current_time_zone: The same for ``current_ts`` and the process time.
        order: The order of changes.
        product: The source database, such as ``oracle``, which messages do not name.
        message_key: The written message key.
    """

    model: Model = Model.AUTO
    row_image: RowImage = RowImage.AUTO
    insert_op_key: str = "I"
    update_op_key: str = "U"
    delete_op_key: str = "D"
    truncate_op_key: str = "T"
    pk_update_op_key: str = ""
    time_zone: str = ""
    current_time_zone: str = ""
    order: Order = Order.POS
    product: str = ""
    message_key: MessageKey = MessageKey.PRIMARY_KEYS
