# SPDX-License-Identifier: Apache-2.0
"""Checks the log of a server before the engine reads on.

A capture process starts again by itself after its database was gone. Another server may answer
then: a standby that was promoted, or one that was restored.
"""

from collections.abc import Iterable
from contextlib import closing

import msgspec

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_offset import lsn_of
from changelane.capture.finding import Finding
from changelane.capture.log_origin import read_origin, write_origin
from changelane.capture.manifest import EngineOffset
from changelane.capture.mysql.captured_mysql import position_of
from changelane.capture.mysql.connection import connect
from changelane.capture.mysql.log_content import log_content_findings
from changelane.capture.postgres.timeline import read_timeline, timeline_findings
from changelane.capture.storage import Folder
from changelane.errors import ChangelaneError


class LogError(ChangelaneError):
    """The log of the server is not the captured one."""


def check_log(options: ConnectorOptions, folder: Folder, offset: EngineOffset) -> None:
    """Check that the log of a server has the captured position; record its timeline.

    Args:
        options: The captured database.
        folder: The storage of the capture log.
        offset: The offset of the newest manifest.

    Raises:
        LogError: Another log has this position.
        ConfigError: The server rejects the login or a statement.
        UnreachableError: The server does not answer.
    """
    recorded = read_origin(folder)
    if recorded is None:
        return
    if options.product == "postgres":
        if (lsn := lsn_of(offset)) is not None:
            timeline = read_timeline(options.postgres_connection, recorded.timeline)
            _reject(timeline_findings(recorded.timeline, timeline, lsn))
            if timeline.number != recorded.timeline:  # else the parent may write new tables now
                write_origin(folder, msgspec.structs.replace(recorded, timeline=timeline.number))
    elif (position := position_of(offset)) is not None:
        with closing(connect(options.mysql_connection)) as connection:
            _reject(log_content_findings(connection, position, recorded.log_mark))


def _reject(findings: Iterable[Finding]) -> None:
    """Raise the first finding."""
    for finding in findings:
        raise LogError(f"{finding.about}: {finding.problem}; {finding.consequence}: {finding.fix}")
