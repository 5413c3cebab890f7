# SPDX-License-Identifier: Apache-2.0
"""Why something failed, in words that quote no value of a row."""

import re
import tempfile
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

FAILURES: Final = (PySparkException, Py4JJavaError)
"""How a statement fails: by an error of Spark's, or by one of the code of a table format or of a
catalog, such as Iceberg's ``RuntimeMetaException``, which PySpark has no class for."""

_VALUES: Final = (
    (re.compile(r"'[^'\n]*'|\"[^\"\n]*\""), "'...'"),
    # CAST_OVERFLOW, NUMERIC_VALUE_OUT_OF_RANGE, and Delta's constraints
    (re.compile(r"The value \S+"), "The value ..."),
    (re.compile(r"(\[NUMERIC_VALUE_OUT_OF_RANGE[^\]]*\]) \S+"), r"\1 ..."),
    (re.compile(r"(violated by row with values:)(\s*- [^\n]*)+"), r"\1 ..."),
)


def reason_of(error: BaseException) -> str:
    """Return why a statement or a stream failed, without values that Spark's words may quote."""
    text = str(error).partition("=== Streaming Query ===")[0].strip()
    return without_values(text.partition("\n\tat ")[0]) or type(error).__name__


def without_values(text: str) -> str:
    """Return a text without the values of rows that Spark's words quote."""
    for values, instead in _VALUES:
        text = values.sub(instead, text)
    return text


JVM_GONE: Final = (
    "Spark's JVM ended in the middle of the run: it was killed, or the machine's memory ran out; "
    "run again, nothing is lost"
)
BROKEN_CHECKPOINT: Final = (
    "a file of the checkpoint is broken: move the checkpoint's folder (options.checkpoint) away; "
    "tables go on with --recover-checkpoint, topics as source.starting_offsets says"
)
_KNOWN_FAULTS: Final = (
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        (
            "no space is left on a device that the run writes to (the tables, the checkpoint, or "
            "spark.local.dir, which is {temporary} unless options.spark_options sets it): free "
            "some and run again, nothing is lost"
        ),
    ),
    (
        re.compile(r"OutOfMemoryError|Java heap space|GC overhead limit"),
        (
            "the JVM ran out of memory: give it more (spark.driver.memory under "
            "options.spark_options), or "
            "take smaller batches"
        ),
    ),
    (
        re.compile(r"Python worker (?:exited unexpectedly|was killed)|\(crashed\)"),
        (
            "a Python worker of Spark was killed or crashed, most often because the machine's "
            "memory ran out: run again, with smaller batches (max_files_per_batch, "
            "max_offsets_per_trigger)"
        ),
    ),
    (
        re.compile(r"[Ii]ncomplete log file|[Mm]alformed log file|MALFORMED_LOG_FILE"),
        BROKEN_CHECKPOINT,
    ),
    (
        re.compile(r"LoginException|JAAS|sasl\.jaas\.config|No LoginModule"),
        "Kafka's login is set wrongly: look at kafka.sasl.jaas.config and kafka.sasl.mechanism",
    ),
    (
        re.compile(r"SaslAuthenticationException|UnsupportedSaslMechanism"),
        "the broker refuses the login: look at kafka.sasl.jaas.config and kafka.sasl.mechanism",
    ),
    (
        re.compile(r"SslAuthenticationException|SSLHandshakeException|PKIX path"),
        "the broker's certificate is not trusted, or ours is refused: look at kafka.ssl.*",
    ),
    (
        re.compile(r"(?:Topic|Group|Cluster)AuthorizationException"),
        (
            "the broker does not allow it: the user needs READ on the topics (and WRITE on those "
            "of a sink)"
        ),
    ),
    (
        re.compile(r"AccessDeniedException|Permission denied|AccessControlException"),
        "a file or folder of the run may not be read or written by this user: {line}",
    ),
)
"""What stands in the words of a known fault, and the sentence with its way out."""
_MAX_SENTENCE: Final = 400


def sentence_of(error: BaseException) -> str:
    """Return one line on why a run failed: a known fault with its way out, else Spark's words."""
    errors = list(_error_chain(error))
    if any(isinstance(error, Py4JNetworkError | ConnectionError) for error in errors):
        return JVM_GONE  # Python itself talks to nobody else while Spark works
    words = "\n".join(f"{type(error).__name__}: {error}" for error in errors)
    line = _line_of(error)
    for fault, sentence in _KNOWN_FAULTS:
        if fault.search(words):
            return sentence.format(temporary=tempfile.gettempdir(), line=line)
    return line


def _line_of(error: BaseException) -> str:
    """Return the line of an error's words that says most; of a Python trace that is the last."""
    lines = [line.strip() for line in reason_of(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    is_trace = any(line.startswith("Traceback (most recent call last)") for line in lines)
    line = lines[-1] if is_trace else lines[0]
    return line if len(line) <= _MAX_SENTENCE else line[:_MAX_SENTENCE] + " ..."


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen_ids: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen_ids:
        seen_ids.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
