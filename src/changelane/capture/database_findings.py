# SPDX-License-Identifier: Apache-2.0
"""What prevents or endangers the capture of a database into its capture log."""

import contextlib
from pathlib import Path
from typing import Final

from changelane.capture.captured_server import CapturedServer
from changelane.capture.finding import Finding, has_errors
from changelane.capture.log_origin import continuation_findings, other_log_findings, read_origin
from changelane.capture.partition_changes import partition_findings
from changelane.capture.products import captured_server_of, table_database_of
from changelane.capture.segment_store import CaptureLog
from changelane.capture.snapshot.table_requests import read_requests, state_of
from changelane.capture.storage import Folder, LocalFolder, folder_of
from changelane.errors import ConfigError
from changelane.formats.contract.options import seconds
from changelane.pipeline.database_source import DatabaseSource

_FOLDER: Final = "engine"
"""The usual folder of the engine's files (its log, spool and offsets) in the capture log."""
_NOT_PUBLISHED: Final = "publication_lacks_table"


def database_findings(source: DatabaseSource) -> list[Finding]:
    """Return what prevents or endangers the capture of a database; nothing is written.

    Raises:
        ConfigError: The server rejects the login, or an option is missing.
        UnreachableError: The server does not answer.
        MissingExtraError: The extra ``capture`` is not installed.
    """
    log = CaptureLog(folder_of(source.segments))
    engine_folder(source, log.folder)  # a capture would fail without it
    return capture_findings(source, captured_server_of(source), log)


def capture_findings(
    source: DatabaseSource, server: CapturedServer, log: CaptureLog
) -> list[Finding]:
    """Return the findings about a server, and about its capture log if it can be captured."""
    offset = log.newest_offset()
    findings = server.findings(offset)
    recorded = read_origin(log.folder)
    # a new table is often none of the publication: `changelane snapshot add` adds it
    if recorded is None or has_errors(f for f in findings if f.defect != _NOT_PUBLISHED):
        return findings
    origin = server.origin()
    requested = {
        request.table
        for request in read_requests(log.folder)
        if state_of(log.folder, request) != "cancelled"
    }
    findings_of_log = list(other_log_findings(recorded, origin, log.folder.label))
    findings += findings_of_log
    if offset is not None and not has_errors(findings_of_log):
        findings += server.log_findings(recorded, offset)
        findings += partition_findings(recorded, origin, server.attached_partitions)
        findings += continuation_findings(
            recorded,
            origin,
            server.tables_with_rows,
            has_snapshot=source.snapshot != "none",
            has_table_snapshots=not source.is_experimental,
            is_read=lambda name: name in requested or is_read_when_new(source, server, name),
        )
    return findings


def is_read_when_new(source: DatabaseSource, server: CapturedServer, name: str) -> bool:
    """Whether the capture reads the rows of a new table by itself."""
    if source.new_tables == "stop":
        return False
    options = server.connector_options(heartbeat_s=seconds(source.heartbeat_interval))
    with contextlib.suppress(ConfigError):  # a type that readers do not know
        table = table_database_of(source, options).table(name)
        return table is not None and bool(table.key)
    return False


def engine_folder(source: DatabaseSource, log: Folder) -> Path:
    """Return the folder of the engine's files.

    Raises:
        ConfigError: There is none, because the capture log is in an object store.
    """
    if source.engine_folder is not None:
        return Path(source.engine_folder)
    if isinstance(log, LocalFolder):
        return Path(log.label) / _FOLDER
    msg = f"the capture log {log.label} is in an object store: set source.engine_folder"
    raise ConfigError(f"{msg} to a folder of this machine")
