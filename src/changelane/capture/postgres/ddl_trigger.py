# SPDX-License-Identifier: Apache-2.0
"""The event trigger that writes the statements of tables into the log of PostgreSQL.

The log has rows only. The trigger adds a logical message for each table that a statement creates,
alters or drops, in its transaction, so that the message is at the position of the statement.
:mod:`changelane.formats.debezium_envelope.reported_ddl` reads it.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from changelane.capture.finding import Finding
from changelane.capture.postgres.connection import database_errors
from changelane.formats.debezium_envelope.reported_ddl import DDL_PREFIX

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

_TRIGGERS: Final = ("changelane_ddl", "changelane_drop")
MESSAGES_VERSION: Final = 140000
"""Version 14 is the first whose ``pgoutput`` sends logical messages."""

# the server does not convert messages; the content of a database in SQL_ASCII has no encoding
_ENCODING: Final = "CASE getdatabaseencoding() WHEN 'SQL_ASCII' THEN 'SQL_ASCII' ELSE 'UTF8' END"

INSTALLATION: Final = """\
-- Writes the statements that change tables into the log. Run it as a superuser in the database.
CREATE SCHEMA IF NOT EXISTS changelane;
-- whoever owns a function of an event trigger acts as each user who alters a table
ALTER SCHEMA changelane OWNER TO CURRENT_USER;

CREATE OR REPLACE FUNCTION changelane.report_ddl() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
  stack text;
  query text;
  ddl text;
  number int := 0;
  this text := extract(epoch FROM statement_timestamp()) || '-' || md5(current_query());
  last text := coalesce(current_setting('changelane.last_ddl', true), '');
  changed record;
BEGIN
  GET DIAGNOSTICS stack = PG_CONTEXT;
  -- the text of a statement that a function executes is unknown
  IF strpos(stack, chr(10)) = 0 AND current_query() !~* '\\m(rollback|abort)\\M' THEN
    query := current_query();
    number := 1 + CASE split_part(last, '/', 1) WHEN this THEN split_part(last, '/', 2)::int
      ELSE 0 END;
    PERFORM set_config('changelane.last_ddl', this || '/' || number, false);
  END IF;
  FOR changed IN
    SELECT DISTINCT c.oid, n.nspname, c.relname
    FROM pg_event_trigger_ddl_commands() AS command
    JOIN pg_class c ON command.classid = 'pg_class'::regclass AND command.objid = c.oid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
  LOOP
    ddl := NULL;
    IF tg_tag LIKE 'CREATE TABLE%' THEN
      SELECT format('CREATE TABLE %I.%I (%s%s)', changed.nspname, changed.relname,
          string_agg(format('%I %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
            CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END), ', ' ORDER BY a.attnum),
          (SELECT format(', PRIMARY KEY (%s)', string_agg(quote_ident(k.attname), ', '
              ORDER BY array_position(i.indkey::int2[], k.attnum)))
            FROM pg_index i JOIN pg_attribute k ON k.attrelid = i.indrelid
              AND k.attnum = ANY (i.indkey::int2[])
            WHERE i.indrelid = changed.oid AND i.indisprimary GROUP BY i.indexrelid))
      INTO ddl
      FROM pg_attribute a
      WHERE a.attrelid = changed.oid AND a.attnum > 0 AND NOT a.attisdropped;
    END IF;
    PERFORM pg_logical_emit_message(true, 'PREFIX', convert_to(json_build_object(
      'schema', changed.nspname, 'table', changed.relname, 'ddl', ddl,
      'query', CASE WHEN ddl IS NULL THEN query END, 'number', number)::text, ENCODING));
  END LOOP;
END
$body$;

CREATE OR REPLACE FUNCTION changelane.report_drop() RETURNS event_trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
  dropped record;
BEGIN
  FOR dropped IN
    SELECT schema_name, object_name FROM pg_event_trigger_dropped_objects()
    WHERE object_type = 'table' AND NOT is_temporary
  LOOP
    PERFORM pg_logical_emit_message(true, 'PREFIX', convert_to(json_build_object(
      'schema', dropped.schema_name, 'table', dropped.object_name, 'ddl',
      format('DROP TABLE %I.%I', dropped.schema_name, dropped.object_name))::text, ENCODING));
  END LOOP;
END
$body$;

ALTER FUNCTION changelane.report_ddl() OWNER TO CURRENT_USER;
ALTER FUNCTION changelane.report_drop() OWNER TO CURRENT_USER;

DROP EVENT TRIGGER IF EXISTS changelane_ddl;
CREATE EVENT TRIGGER changelane_ddl ON ddl_command_end
  WHEN tag IN ('CREATE TABLE', 'CREATE TABLE AS', 'ALTER TABLE', 'DROP TABLE')
  EXECUTE FUNCTION changelane.report_ddl();
ALTER EVENT TRIGGER changelane_ddl ENABLE ALWAYS;
DROP EVENT TRIGGER IF EXISTS changelane_drop;
CREATE EVENT TRIGGER changelane_drop ON sql_drop EXECUTE FUNCTION changelane.report_drop();
ALTER EVENT TRIGGER changelane_drop ENABLE ALWAYS;
""".replace("PREFIX", DDL_PREFIX).replace("ENCODING", _ENCODING)
"""The script that installs the trigger."""


def ddl_trigger_findings(connection: "Connection", version: int) -> Iterator[Finding]:
    """Yield a finding if the event trigger does not exist, or is disabled.

    Args:
        connection: The connection.
        version: The version of the server.
    """
    about = "event trigger changelane_ddl"
    if version < MESSAGES_VERSION:
        yield Finding(
            severity="error",
            defect="ddl_trigger_version",
            about=about,
            problem="the log has no messages before version 14",
            consequence="statements are lost",
            advice="upgrade, or set `ddl: none`",
        )
        return
    with database_errors("the check of the event trigger"):
        row = connection.execute(
            "SELECT count(*) FROM pg_event_trigger "
            "WHERE evtname = ANY (%s) AND evtenabled IN ('O', 'A')",
            [list(_TRIGGERS)],
        ).fetchone()
    if row is None or row[0] != len(_TRIGGERS):
        yield Finding(
            severity="error",
            defect="ddl_trigger",
            about=about,
            problem="it does not exist, or is disabled, and the source has `ddl: event_trigger`",
            consequence="statements are lost",
            advice="a superuser runs the script of `changelane capture PIPELINE.yaml --print-sql`",
        )
