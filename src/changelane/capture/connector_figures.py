# SPDX-License-Identifier: Apache-2.0
"""The state of a connector in Kafka Connect, for people and programs."""

import msgspec

from changelane.capture.capture_figures import lag_text
from changelane.capture.captured_server import CapturedServer, LogLag
from changelane.capture.connect_capture import cluster_of
from changelane.capture.connect_cluster import ConnectorStatus
from changelane.capture.connect_config import connector_name
from changelane.capture.manifest import EngineOffset
from changelane.errors import ChangelaneError, ConfigError
from changelane.pipeline.database_source import DatabaseSource


class ConnectorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a connector.

    Attributes:
        name: The name of the connector.
        url: The Kafka Connect cluster.
        state: The state of the connector as Kafka Connect names it; empty = it is not registered,
            or its state is unknown.
        reason: The first line of the trace, if the connector failed.
        tasks: The state of each task.
        server: The log of the server; ``None`` = it did not answer.
        problem: Why Kafka Connect or the server did not answer; empty = they did.
    """

    name: str
    url: str
    state: str = ""
    reason: str = ""
    tasks: tuple["TaskFigures", ...] = ()
    server: LogLag | None = None
    problem: str = ""


class TaskFigures(msgspec.Struct, frozen=True):
    """The state of a task.

    Attributes:
        task: The number of the task.
        state: Its state as Kafka Connect names it.
        worker: The worker that runs it.
        reason: The first line of its trace, if it failed.
    """

    task: int
    state: str
    worker: str
    reason: str = ""


def read_connector_figures(source: DatabaseSource, server: CapturedServer) -> ConnectorFigures:
    """Return the state of a source's connector; a service that does not answer is a figure, too."""
    cluster = cluster_of(source)
    name = connector_name(source.server_name, source.type_name)
    figures = ConnectorFigures(name=name, url=cluster.label)
    offset: EngineOffset | None = None
    try:
        status = cluster.status(name)
        if status is not None:
            figures = _with_status(figures, status)
            offset = cluster.offset(name)
    except ConfigError as error:
        figures = msgspec.structs.replace(figures, problem=str(error))
    try:
        return msgspec.structs.replace(figures, server=server.log_lag(offset))
    except ChangelaneError as error:
        problem = "; ".join(filter(None, [figures.problem, str(error)]))
        return msgspec.structs.replace(figures, problem=problem)


def _with_status(figures: ConnectorFigures, status: ConnectorStatus) -> ConnectorFigures:
    return msgspec.structs.replace(
        figures,
        state=status.connector.state,
        reason=status.connector.reason,
        tasks=tuple(
            TaskFigures(unit.id or 0, unit.state, unit.worker_id, unit.reason)
            for unit in status.tasks
        ),
    )


def connector_lines(figures: ConnectorFigures, *, label: str) -> list[str]:
    """Return the state of a connector as lines for people.

    Args:
        figures: The state.
        label: The database as text.
    """
    about = f"connector {figures.name} in {figures.url}"
    lines = []
    if figures.state:
        units = [(figures.state.lower(), figures.reason)]
        units += [
            (f"task {task.task} {task.state.lower()} at {task.worker}", task.reason)
            for task in figures.tasks
        ]
        lines.append(f"{about}: " + ", ".join(": ".join(filter(None, unit)) for unit in units))
    elif not figures.problem:
        lines.append(f"{about}: not registered; `changelane capture` registers it")
    if figures.problem:
        lines.append(f"{about}: {figures.problem}")
    if figures.server is not None:
        lines.append(f"{label}: {lag_text(figures.server)}")
    return lines
