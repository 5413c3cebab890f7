# SPDX-License-Identifier: Apache-2.0
"""Reasons of failures, without the values of rows that Spark's messages may quote."""

import re
import tempfile
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

FAILURES: Final = (PySparkException, Py4JJavaError)
"""The errors of a statement: Spark's own, and those of a table format or a catalog without a class
in PySpark, such as Iceberg's ``RuntimeMetaException``."""

_VALUES: Final = (
    # Delta's constraints; a value may have line breaks, and the stack follows the values
    (
        re.compile(r"(violated by row with values:).*?(?=\n\s*at [\w.$]|\Z)", re.DOTALL),
        r"\1 ...",
    ),
    # CAST_INVALID_INPUT, CAST_OVERFLOW
    (re.compile(r"The value .*?( of the type )", re.DOTALL), r"The value ...\1"),
    (re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\""), "'...'"),
    # NUMERIC_VALUE_OUT_OF_RANGE
    (re.compile(r"The value \S+"), "The value ..."),
    (re.compile(r"(\[NUMERIC_VALUE_OUT_OF_RANGE[^\]]*\]) \S+"), r"\1 ..."),
)


def reason_of(error: BaseException) -> str:
    """Return why a statement or a stream failed, without values of rows."""
    text = str(error).partition("=== Streaming Query ===")[0].strip()
    return without_values(text.partition("\n\tat ")[0]) or type(error).__name__


def without_values(text: str) -> str:
    """Return a message of Spark without the values of rows that it quotes."""
    for values, instead in _VALUES:
        text = values.sub(instead, text)
    return text


JVM_ENDED: Final = (
    "Spark's JVM ended during the run: it was killed, or the machine's memory ran out; "
    "run again, nothing is lost"
)
BROKEN_CHECKPOINT: Final = (
    "a file of the checkpoint is broken: move the checkpoint's folder (options.checkpoint) away; "
    "tables continue with --recover-checkpoint, topics at source.starting_offsets"
)
_KNOWN_FAULTS: Final = (
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        (
            "no space is left on a device that the run writes to (the tables, the checkpoint, or "
            "spark.local.dir, by default {temporary}): free some space and run again, nothing is "
            "lost"
        ),
    ),
    (
        re.compile(r"OutOfMemoryError|Java heap space|GC overhead limit"),
        (
            "the JVM ran out of memory: increase spark.driver.memory in options.spark_options, or "
            "use smaller batches"
        ),
    ),
    (
        re.compile(r"Python worker (?:exited unexpectedly|was killed)|\(crashed\)"),
        (
            "a Python worker of Spark was killed or crashed, usually because the machine's "
            "memory ran out: run again with smaller batches (max_files_per_batch, "
            "max_offsets_per_trigger)"
        ),
    ),
    (
        # of a local checkpoint, which is not the checkpoint of the pipeline
        re.compile(r"Checkpoint block rdd_\d+_\d+ not found"),
        (
            "an executor of Spark ended, or was removed, which kept rows of the batch: run again, "
            "nothing is lost"
        ),
    ),
    (
        re.compile(r"[Ii]ncomplete log file|[Mm]alformed log file|MALFORMED_LOG_FILE"),
        BROKEN_CHECKPOINT,
    ),
    (
        re.compile(r"LoginException|JAAS|sasl\.jaas\.config|No LoginModule"),
        "the Kafka login is invalid: check kafka.sasl.jaas.config and kafka.sasl.mechanism",
    ),
    (
        re.compile(r"SaslAuthenticationException|UnsupportedSaslMechanism"),
        "the broker rejects the login: check kafka.sasl.jaas.config and kafka.sasl.mechanism",
    ),
    (
        re.compile(r"SslAuthenticationException|SSLHandshakeException|PKIX path"),
        "the certificate of the broker is not trusted, or ours is rejected: check kafka.ssl.*",
    ),
    (
        re.compile(r"(?:Topic|Group|Cluster)AuthorizationException"),
        (
            "the broker denies access: grant the user READ on the source's topics and WRITE on the "
            "sink's"
        ),
    ),
    (
        re.compile(r"AccessDeniedException|Permission denied|AccessControlException"),
        "this user is not permitted to read or write a file or folder of the run: {line}",
    ),
)
"""The pattern of a known fault in the error text, and the sentence with its fix."""
_MAX_SENTENCE: Final = 400
_STATE: Final = "SQLSTATE: "
"""The beginning of a line that Spark appends to the trace of a worker."""
_CALL: Final = "An error occurred while calling "
"""The beginning of the first line of :class:`Py4JJavaError`."""


def sentence_of(error: BaseException) -> str:
    """Return why a run failed, in one line: a known fault with its fix, else Spark's message."""
    errors = list(error_chain(error))
    if any(isinstance(error, Py4JNetworkError | ConnectionError) for error in errors):
        return JVM_ENDED  # during a run Python itself has no connection except to the JVM
    error_text = "\n".join(f"{type(error).__name__}: {error}" for error in errors)
    line = _line_of(error)
    for fault, sentence in _KNOWN_FAULTS:
        if fault.search(error_text):
            return sentence.format(temporary=tempfile.gettempdir(), line=line)
    return line


def _line_of(error: BaseException) -> str:
    """Return the first line of an error's text; of a Python trace the last line."""
    lines = [line.strip() for line in reason_of(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_STATE)] or lines
    if not lines:
        return type(error).__name__
    if lines[0].startswith(_CALL) and len(lines) > 1:
        lines = [lines[1].removeprefix(": ")]  # the error of Java; before it, Python's name of it
    is_trace = any(line.startswith("Traceback (most recent call last)") for line in lines)
    line = lines[-1] if is_trace else lines[0]
    return line if len(line) <= _MAX_SENTENCE else line[:_MAX_SENTENCE] + " ..."


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen_ids:
        seen_ids.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
