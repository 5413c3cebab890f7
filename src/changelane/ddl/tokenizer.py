# SPDX-License-Identifier: Apache-2.0
"""The words of a statement, and a cursor that moves over them and never back.

sqlglot's tokenizers know the quotes, comments and literals of each database. Its parser is not
used: it refuses or logs much of what databases write into their logs (``RENAME TABLE``,
``ADD (a INT, b INT)``, ``FLOAT(7,4) UNSIGNED``), reads ``ALTER TABLE t RENAME a TO b`` of
PostgreSQL as a new name of the table, and gives types back in its own spelling.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple

from changelane.schema import TableId

LONGEST: Final = 1 << 17
"""Characters of the longest text that is read: 128 for each column of InnoDB's widest table."""


class UnreadError(Exception):
    """The statement says something that is not known here; its text stays text."""


class Word(NamedTuple):
    """A word, name, literal or symbol.

    Attributes:
        kind: ``word``, ``name`` (quoted), ``text``, ``number``, ``symbol`` or ``end``.
        upper: The word in upper case or the symbol; empty for everything quoted.
        text: What it stands for: without quotes and escapes.
        start: Its place in the statement.
        end: The place behind it.
    """

    kind: str
    upper: str
    text: str
    start: int
    end: int


_WORD: Final = re.compile(r"[^\W\d]|[$#@]|\d")
_PARTS: Final = re.compile(r"\S+")
_LITERALS: Final = frozenset(
    "STRING NATIONAL_STRING RAW_STRING BYTE_STRING HEREDOC_STRING UNICODE_STRING "
    "BIT_STRING HEX_STRING".split()
)

# Comments that MySQL and MariaDB execute. Strings, names and other comments are skipped, each in
# the one way in which it can be read, to the end of the text where they are not closed.
_EXECUTABLE: Final = re.compile(
    r"""'(?:[^'\\]|\\(?:.|\Z))*+(?:'|\Z)|"(?:[^"\\]|\\(?:.|\Z))*+(?:"|\Z)|`[^`]*+(?:`|\Z)|\#[^\n]*+|--\s[^\n]*+"""
    r"""|/\*(?!M?!).*?(?:\*/|\Z)|/\*M?!\d*+(?P<inside>.*?)(?P<closed>\*/|\Z)""",
    re.DOTALL,
)


def _executed(match: re.Match[str]) -> str:
    return f" {match['inside']} " if match["closed"] else match.group()


@cache
def _tokenizer(dialect: str) -> Any:
    # importing sqlglot takes a tenth of a second, which a stream without DDL does not pay
    from sqlglot.dialects.mysql import MySQL
    from sqlglot.dialects.oracle import Oracle
    from sqlglot.dialects.postgres import Postgres

    # commands would take the rest of their statement as one text
    class MySqlTokenizer(MySQL.Tokenizer):
        COMMANDS: ClassVar[set[Any]] = set()

    class PostgresTokenizer(Postgres.Tokenizer):
        COMMANDS: ClassVar[set[Any]] = set()

    class OracleTokenizer(Oracle.Tokenizer):
        COMMANDS: ClassVar[set[Any]] = set()

    match dialect:
        case "mysql":
            return MySqlTokenizer(dialect="mysql")
        case "postgresql":
            return PostgresTokenizer(dialect="postgres")
        case "oracle":
            return OracleTokenizer(dialect="oracle")
        case _:
            raise ValueError(f"no SQL is called {dialect!r}")


def split(sql: str, dialect: str) -> tuple[str, list[Word]]:
    """Return the text that is read, and its words.

    Raises:
        UnreadError: The text is too long, or a quote or comment is not closed.
    """
    if len(sql) > LONGEST:
        raise UnreadError("longer than what is read")
    if dialect == "mysql" and "!" in sql:
        sql = _EXECUTABLE.sub(_executed, sql)
    from sqlglot.errors import SqlglotError

    try:
        tokens = _tokenizer(dialect).tokenize(sql)
    except (SqlglotError, ValueError, IndexError, RecursionError):
        raise UnreadError("a quote or a comment is not closed") from None
    words: list[Word] = []
    for token in tokens:
        start, end = token.start, token.end + 1
        kind = token.token_type.name
        if kind == "IDENTIFIER":
            words.append(Word("name", "", token.text, start, end))
        elif kind in _LITERALS:
            words.append(Word("text", "", token.text, start, end))
        elif kind == "NUMBER":
            words.append(Word("number", "", token.text, start, end))
        elif not _WORD.match(sql, start):
            words.append(Word("symbol", sql[start:end], "", start, end))
        else:
            # keywords of several words are one token there
            for part in _PARTS.finditer(sql, start, end):
                text = part.group()
                words.append(Word("word", text.upper(), text, part.start(), part.end()))
    return sql, words


_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
# reserved words there, so that nothing else is called so
_ORACLE_ACTIONS: Final = frozenset({"ADD", "DROP", "MODIFY", "RENAME", "SET"})
_OPEN: Final = frozenset("([")
_CLOSED: Final = frozenset(")]")


class Cursor:
    """Reads one statement from its first word to its last."""

    def __init__(self, sql: str, words: Sequence[Word], dialect: str, usual: TableId) -> None:
        self.dialect = dialect
        self.usual = usual
        self.named: TableId | None = None
        self._sql = sql
        self._words = words
        last = words[-1].end if words else 0
        self._end = Word("end", "", "", last, last)
        self._at = 0

    def peek(self, ahead: int = 0) -> Word:
        """Return a word that is still to come."""
        index = self._at + ahead
        return self._words[index] if 0 <= index < len(self._words) else self._end

    def next(self) -> Word:
        """Return the word here and move on."""
        word = self.peek()
        if word.kind == "end":
            raise UnreadError("ends too early")
        self._at += 1
        return word

    def sees(self, *words: str) -> bool:
        """Say whether these words or symbols come next."""
        return all(self.peek(ahead).upper == word for ahead, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Move behind these words, if they come next."""
        if self.sees(*words):
            self._at += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        """Move behind these words.

        Raises:
            UnreadError: Other words come.
        """
        if not self.take(*words):
            raise UnreadError(f"no {' '.join(words)} where one belongs")

    @property
    def is_done(self) -> bool:
        """Nothing is left."""
        return self.peek().kind == "end"

    @property
    def is_between(self) -> bool:
        """A list goes on or ends here."""
        return self.peek().kind == "end" or self.peek().upper in {",", ")"}

    @property
    def is_behind(self) -> bool:
        """A definition ends here: the list does, or Oracle's next action begins."""
        if self.is_between:
            return True
        return self.dialect == "oracle" and self.peek().upper in _ORACLE_ACTIONS

    def name(self) -> str:
        """Return a name as the database stores it."""
        word = self.next()
        match word.kind:
            case "name":
                return word.text
            case "text" if self.dialect == "mysql" and self._sql[word.start] == '"':
                return word.text  # a name with ANSI_QUOTES
            case "word" if "@" in word.text and self.dialect != "mysql":
                raise UnreadError("a name in another database")
            case "word" if self.dialect == "postgresql":
                return word.text.translate(_ASCII_LOWER)
            case "word":
                return word.upper if self.dialect == "oracle" else word.text
            case _:
                raise UnreadError("no name where one belongs")

    def table(self) -> TableId:
        """Return the name of a table; what it leaves out is as usual."""
        parts = [self.name()]
        while self.take("."):
            parts.append(self.name())
        usual = self.usual
        match parts:
            case [name]:
                table = TableId(usual.database, usual.schema, name)
            case [database, name] if self.dialect == "mysql":
                table = TableId(database, None, name)
            case [schema, name]:
                table = TableId(usual.database, schema, name)
            case [database, schema, name] if self.dialect == "postgresql":
                table = TableId(database, schema, name)
            case _:
                raise UnreadError("a table's name of too many parts")
        if self.named is None:
            self.named = table
        return table

    def names(self) -> tuple[str, ...]:
        """Return the names of a list in parentheses."""
        self.expect("(")
        names = [self.name()]
        while self.take(","):
            names.append(self.name())
        self.expect(")")
        return tuple(names)

    def skip(self) -> None:
        """Move behind one word, or behind everything in parentheses or brackets."""
        depth = 0
        while True:
            symbol = self.next().upper
            if symbol in _OPEN:
                depth += 1
            elif symbol in _CLOSED:
                depth -= 1
            if depth <= 0:
                return

    def skip_element(self) -> str:
        """Move to the end of an element of a list and return its text."""
        start = self.peek().start
        while not self.is_between:
            self.skip()
        return self.text_from(start)

    def skip_all(self) -> str:
        """Move to the end of the statement and return the text up to it."""
        start = self.peek().start
        self._at = len(self._words)
        return self.text_from(start)

    def text_from(self, start: int) -> str:
        """Return the text from a place up to the word behind which the cursor stands."""
        return self._sql[start : max(start, self._words[self._at - 1].end)] if self._at else ""

    def spelled(self, first: int, last: int) -> str:
        """Return words again, literals with simple quotes and blanks where any were."""
        parts: list[str] = []
        for index in range(first, last):
            word = self._words[index]
            if index > first and word.start > self._words[index - 1].end:
                parts.append(" ")
            if word.kind == "text":
                parts.append("'" + word.text.replace("'", "''") + "'")
            else:
                parts.append(self._sql[word.start : word.end])
        return "".join(parts)

    @property
    def place(self) -> int:
        """How many words are behind."""
        return self._at
