# SPDX-License-Identifier: Apache-2.0
"""The reason codes of the quarantine, each with its cause and the way out.

The table of reason codes in ``docs/quarantine.md`` is generated from this module.
"""

from enum import StrEnum
from typing import Self


class ReasonCode(StrEnum):
    """The reason why a message or an event is in the quarantine.

    The value of a member, such as ``malformed_json``, is its text in reports, metrics and entries.

    Attributes:
        cause: The cause, as a sentence.
        fix: The way out, as a sentence.
    """

    cause: str
    fix: str

    def __new__(cls, code: str, cause: str = "", fix: str = "") -> Self:
        """Create a member from its code, its cause and its way out."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.cause = cause
        member.fix = fix
        return member

    def __repr__(self) -> str:
        """Return the quoted value without the class name, which users do not know."""
        return repr(self.value)

    # messages and files that cannot be read
    MALFORMED = (
        "malformed",
        "The message is not in the format of the source.",
        "Replay with the right `--format`, or repair the message.",
    )
    MALFORMED_JSON = (
        "malformed_json",
        "The message is not JSON.",
        "Replay with the right `--format`, or repair the message.",
    )
    MALFORMED_AVRO = (
        "malformed_avro",
        "The message is not a record of the Avro schema.",
        "Replay with the right `--format`, or repair the message.",
    )
    INCOMPLETE_MESSAGE = (
        "incomplete_message",
        "The message ends too early.",
        "Repair the message, or let the producer send it again.",
    )
    TRAILING_BYTES = (
        "trailing_bytes",
        "Bytes follow the record.",
        "Check the format's options, or repair the message.",
    )
    INVALID_UTF8 = (
        "invalid_utf8",
        "A text is not UTF-8.",
        "Let the producer write UTF-8, or repair the message.",
    )
    TOO_DEEP = (
        "too_deep",
        "A value has more than 200 levels of nested arrays and objects.",
        "Let the producer write the value as text, repair the message, or discard it.",
    )
    TOO_MANY_COLUMNS = (
        "too_many_columns",
        "The message has more columns than any database allows.",
        "Check the producer; discard the message.",
    )
    WRONG_TYPE = (
        "wrong_type",
        "A field of the message does not have the type that its format defines.",
        "Check `source.format` and its options, or repair the message.",
    )
    WRONG_LENGTH = (
        "wrong_length",
        "The number of values in an image differs from the number of fields of the record.",
        "Repair the message, or let the producer send it again.",
    )
    WRONG_SCHEMA = (
        "wrong_schema",
        "The schema in the message is not valid.",
        "Check the converter of the producer, or repair the message.",
    )
    WRONG_IMAGE = (
        "wrong_image",
        "The before and after flags of a row do not match its operation.",
        "Check the producer, or repair the message.",
    )
    VALUE_OUT_OF_RANGE = (
        "value_out_of_range",
        "A value is outside the range of its type.",
        "Correct the value at the source, or repair the message.",
    )
    MISSING_FIELD = (
        "missing_field",
        "The message lacks a field that its format requires.",
        "Check `source.format` and its options, or repair the message.",
    )
    UNEXPECTED_FIELD = (
        "unexpected_field",
        "The message has a field that its operation does not have.",
        "Check the producer, or repair the message.",
    )
    MISSING_IMAGE = (
        "missing_image",
        "The change has no image of the row, or the delete has no before image.",
        "Let the database log full images (REPLICA IDENTITY, supplemental logging).",
    )
    UNEXPECTED_IMAGE = (
        "unexpected_image",
        "The change has an image that its operation does not have.",
        "Check the producer, or repair the message.",
    )
    INCOMPLETE_ROW = (
        "incomplete_row",
        "The message contains only the key of the row, a link to it, or parts of its values.",
        "Let TiCDC (no `large-message-handle-option`) or Debezium for MongoDB send whole rows.",
    )
    UNKNOWN_COLUMN = (
        "unknown_column",
        "The row has a column that its schema does not have.",
        "Check the producer, or repair the message.",
    )
    ENCRYPTED = (
        "encrypted",
        "The message is encrypted.",
        "Let the producer write plain messages (Maxwell: `encrypt = none`), or decrypt it before.",
    )
    UNKNOWN_FORMAT = (
        "unknown_format",
        "The format cannot be detected from the first messages.",
        "Name the format, for example with `-f`.",
    )
    UNKNOWN_KIND = (
        "unknown_kind",
        "The message is not of a kind that its format defines.",
        "Replay with the right `--format`, or discard the message.",
    )
    UNKNOWN_OPERATION = (
        "unknown_operation",
        "The format does not define the operation.",
        "Replay with the right `--format`, or repair the message.",
    )
    UNKNOWN_TYPE = (
        "unknown_type",
        "The format does not define the column type.",
        "Check the version of the producer, or repair the message.",
    )
    UNKNOWN_RELATION = (
        "unknown_relation",
        "The columns of the row are in an earlier message, which was not read with it.",
        "Convert the stream first: `changelane convert -f pgoutput -t pgoutput`.",
    )
    UNKNOWN_SCHEMA = (
        "unknown_schema",
        "The schema that the message names by its version or id is not declared or registered.",
        "Declare the schema in the option of the format, or register it, then replay.",
    )
    CHECKSUM = (
        "checksum",
        "The values of the row do not have the checksum in the message.",
        "Compare the row with its source; correct the row or the declared columns, then replay.",
    )
    UNKNOWN_VERSION = (
        "unknown_version",
        "The message is in another version of the format.",
        "Replay with the format of that version.",
    )
    NOT_A_RECORD = (
        "not_a_record",
        "A line is not a record with topic, key, value and headers.",
        "Set `line_format: value`, or repair the line.",
    )
    LINE_TOO_LONG = (
        "line_too_long",
        "A line is longer than the limit.",
        "Split the file between messages, or let the producer write smaller messages.",
    )
    CORRUPT_COMPRESSION = (
        "corrupt_compression",
        "A compressed file is damaged or incomplete.",
        "Replace the file with a complete one, then replay.",
    )
    EXPANSION = (
        "expansion",
        "A compressed file expands to more than 1000 times its size.",
        "If you trust the file, replace it with a decompressed one, then replay.",
    )
    MALFORMED_FILE = (
        "malformed_file",
        "A Parquet, Avro or CSV file is damaged, or its content does not fit `source.rows`.",
        "Replace the file or correct `source.rows`, then replay.",
    )
    UNREADABLE_FILE = (
        "unreadable_file",
        "A file cannot be read.",
        "Correct the file or its permissions, then replay.",
    )
    DEFECT = (
        "defect",
        "changelane failed on the message or event because of a bug.",
        "Report the bug, update changelane, then replay.",
    )

    # events that the transforms reject
    TRANSFORM = (
        "transform",
        "A transform cannot be applied to the event.",
        "Correct `transforms`, then replay.",
    )
    CAST = (
        "cast",
        "A value cannot be cast to the new type.",
        "Choose a type that contains the value, or correct the value, then replay.",
    )
    MASK = (
        "mask",
        "A value cannot be masked.",
        "Choose another `method` of the mask, then replay.",
    )
    MASK_MISSING = (
        "mask_missing",
        "A table lacks a column that a mask names.",
        "Correct the mask, or set `when_missing: pass`, then replay.",
    )
    ROUTE = (
        "route",
        "A route gives a table an invalid name, or two topics.",
        "Correct the route, then replay.",
    )
    KEY_COLUMN = (
        "key_column",
        "A transform would change or remove a column of the key.",
        "Correct the transform, or the key (`options.keys`), then replay.",
    )
    TABLES_MEET = (
        "tables_meet",
        "Two source tables would become one table with possibly equal keys.",
        "Set `shards: key` or `shards: apart` in both routes, then replay.",
    )
    TWO_COLUMNS = (
        "two_columns",
        "Two columns would get the same name.",
        "Correct the rename, then replay.",
    )
    UNNAMED_TABLE = (
        "unnamed_table",
        "The event does not name its table, which a transform needs.",
        "Discard the event, or let the producer write the table's name.",
    )
    SHARD_STATEMENT = (
        "shard_statement",
        "A truncate or DDL statement changes one of several tables that a route merges.",
        "Apply its effect by hand, then discard the entry.",
    )
    UNTRANSLATED_STATEMENT = (
        "untranslated_statement",
        "A DDL statement has no equivalent after the transforms.",
        "Apply its effect by hand, then discard the entry.",
    )
    FILTER_UNKNOWN = (
        "filter_unknown",
        "The event lacks a column that the filter reads.",
        "Let the producer write full images, or change the filter.",
    )
    FILTER_FAILED = (
        "filter_failed",
        "The expression of the filter fails for the row.",
        "Correct the expression, then replay.",
    )
    COMPUTE_UNKNOWN = (
        "compute_unknown",
        "The event lacks a column that a computed column reads.",
        "Let the producer write full images, or change the expression.",
    )
    COMPUTE_FAILED = (
        "compute_failed",
        "The expression of a computed column fails for the row.",
        "Correct the expression, then replay.",
    )

    # events that a table rejects
    NO_KEY = (
        "no_key",
        "The event has no key.",
        "Set `options.keys` or `tables_without_key`, then read the messages again.",
    )
    KEY_CHANGED = (
        "key_changed",
        "The key of the events differs from the key of the table.",
        "Write into a new table, or name the old key in `options.keys`, then replay.",
    )
    UNORDERED = (
        "unordered",
        "The position of the event cannot be compared with those of the table.",
        "Use one partition, a format with positions, or a higher `epoch`, then replay.",
    )
    TOO_LATE = (
        "too_late",
        "The event is older than a purge, and its row is not in the table.",
        "Raise `tombstone_retention`; discard the event if the row was deleted.",
    )
    AMBIGUOUS_KEY_MOVE = (
        "ambiguous_key_move",
        "Two rows had one key in a transaction, and the event does not identify its row.",
        "Let the producer write full before images; correct both rows by hand.",
    )
    SCHEMA_MISMATCH = (
        "schema_mismatch",
        "The table's columns or types cannot contain the row.",
        "Run `changelane schema plan`, alter the table as it shows, then replay.",
    )
    SCHEMA_CHANGE = (
        "schema_change",
        "The event needs a change of the table that `schema_changes` does not allow.",
        "Run `changelane schema plan` and `apply`, then replay.",
    )
    CASE_COLLISION = (
        "case_collision",
        "The names of two columns differ only by case.",
        "Rename one of them with the transform `rename`, then replay.",
    )
    MODE_CONFLICT = (
        "mode_conflict",
        "The table was created in another mode.",
        "Restore the mode, or write into a new table, then replay.",
    )
    SOURCE_CONFLICT = (
        "source_conflict",
        "The event comes from another database server than the rows of the table.",
        "Set `source_servers: multiple` if their keys are disjoint, then replay.",
    )
    FOREIGN_TABLE = (
        "foreign_table",
        "The folder of the table contains a table of another source or program.",
        "Choose another folder, or a `route`, then replay.",
    )
    LOST_PARTITION = (
        "lost_partition",
        "The table format reads this partition value back as NULL, or as another value.",
        "Do not partition by that column, then replay.",
    )
    UNREAD_DDL = (
        "unread_ddl",
        "A DDL statement cannot be parsed.",
        "Run `changelane schema plan`, alter the table by hand, then discard the entry.",
    )
    LATE_STATEMENT = (
        "late_statement",
        "A DDL statement arrived after newer events of the columns that it changes.",
        "Run `changelane schema plan`, alter the table as it shows, then replay.",
    )

    # events that a sink of topics rejects
    UNSUPPORTED = (
        "unsupported",
        "The sink's format cannot carry a part of the event.",
        "Accept the loss by its name in `on_loss`, then replay.",
    )
    NOT_ENCODABLE = (
        "not_encodable",
        "The event cannot be encoded in the sink's format.",
        "Correct the event or choose another format, then replay.",
    )
    ORPHAN_HALF = (
        "orphan_half",
        "The other half of the update is in another batch or partition.",
        "Replay both halves together.",
    )
    HELD = (
        "held",
        "An earlier message with the same key is in the quarantine.",
        "Replay or discard the earlier message.",
    )
    NO_SUCH_EVENT = (
        "no_such_event",
        "A repaired message has fewer events than before.",
        "Discard the entry, or repair the message again.",
    )
    SAME_TOPIC = (
        "same_topic",
        "The message would be written to the topic that it was read from.",
        "Change `sink.topic`, then replay.",
    )
    NO_TOPIC = (
        "no_topic",
        "The topic does not exist.",
        "Create the topic, then replay.",
    )
    NO_TOPIC_NAME = (
        "no_topic_name",
        "The name of the table contains characters that a topic name must not contain.",
        "Give the table a topic with a `route`, then replay.",
    )
    TWO_TOPICS = (
        "two_topics",
        "A route and the profile or format give the message different topics.",
        "Remove one of them, then replay.",
    )
    WRONG_TOPIC = (
        "wrong_topic",
        "The DataHub topic is of another type.",
        "Choose another topic, then replay.",
    )
    TOPIC_SCHEMA = (
        "topic_schema",
        "The schema of the DataHub topic cannot contain the row.",
        "Alter the topic, then replay.",
    )
    NO_SCHEMA = (
        "no_schema",
        "The DataHub topic does not exist, and the event has no types to create it from.",
        "Create the topic, then replay.",
    )
    TWO_TABLES = (
        "two_tables",
        "Another table writes to the DataHub topic.",
        "Give one of the tables another topic with a `route`, then replay.",
    )
    TRUNCATE = (
        "truncate",
        "A DataHub TUPLE topic cannot represent a truncate.",
        "Delete the rows in the reader's table, then discard the entry.",
    )
    NO_ROW = (
        "no_row",
        "A DataHub TUPLE topic cannot represent an event of this kind.",
        "Discard the entry.",
    )
    SEQUENCE = (
        "sequence",
        "The coordinates of the message do not fit into DataHub's sequence.",
        "Use a source format with positions.",
    )
    RECORD_TOO_LARGE = (
        "record_too_large",
        "The record or a text in it is larger than DataHub allows.",
        "Remove the column with `project`, then replay.",
    )
    REFUSED_BY_DATAHUB = (
        "refused_by_datahub",
        "DataHub rejected the record.",
        "Correct the reason in the entry, then replay.",
    )
