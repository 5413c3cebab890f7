# SPDX-License-Identifier: Apache-2.0
"""The tokens of a statement, and a forward-only cursor over them.

sqlglot's tokenizers handle the quotes, comments and literals of each database. sqlglot's parser is
not used. It rejects or logs many statements of database logs (``RENAME TABLE``,
``ADD (a INT, b INT)``, ``FLOAT(7,4) UNSIGNED``). It parses ``ALTER TABLE t RENAME a TO b`` of
PostgreSQL as a rename of the table, and it changes the spelling of types.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Final, NamedTuple

from changelane.schema import TableId

MAX_TEXT_LENGTH: Final = 1 << 17
"""Maximum length of a parsed text: 128 characters for each column of InnoDB's widest table."""


class UnknownSyntaxError(Exception):
    """The statement contains syntax that the parser does not know."""


class Word(NamedTuple):
    """A word, name, literal or symbol.

    Attributes:
        kind: ``word``, ``name`` (quoted), ``text``, ``number``, ``symbol`` or ``end``.
        upper: The word in upper case, or the symbol; empty for a quoted name or text.
        text: The text without quotes and escapes.
        start: The index of its first character in the statement.
        end: The index after its last character.
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

# Comments that MySQL and MariaDB execute. The other alternatives skip strings, names and plain
# comments, without backtracking, up to the end of the text if they are not closed.
_EXECUTABLE: Final = re.compile(
    r"""'(?:[^'\\]|\\(?:.|\Z))*+(?:'|\Z)|"(?:[^"\\]|\\(?:.|\Z))*+(?:"|\Z)|`[^`]*+(?:`|\Z)|\#[^\n]*+|--\s[^\n]*+"""
    r"""|/\*(?!M?!).*?(?:\*/|\Z)|/\*M?!\d*+(?P<inside>.*?)(?P<closed>\*/|\Z)""",
    re.DOTALL,
)


def _executable_text(match: re.Match[str]) -> str:
    return f" {match['inside']} " if match["closed"] else match.group()


@cache
def _tokenizer(dialect: str) -> Any:
    # importing sqlglot takes 0.1 s; a stream without DDL does not import it
    from sqlglot.dialects.mysql import MySQL
    from sqlglot.dialects.oracle import Oracle
    from sqlglot.dialects.postgres import Postgres

    # sqlglot's commands would make one token of the rest of their statement
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
            raise ValueError(f"unknown SQL dialect {dialect!r}")


def tokenize(sql: str, dialect: str) -> tuple[str, list[Word]]:
    """Return the tokenized text, with executable comments as plain text, and its words.

    Raises:
        UnknownSyntaxError: The text is too long, or a quote or comment is not closed.
    """
    if len(sql) > MAX_TEXT_LENGTH:
        raise UnknownSyntaxError("the statement is too long")
    if dialect == "mysql" and "!" in sql:
        sql = _EXECUTABLE.sub(_executable_text, sql)
    from sqlglot.errors import SqlglotError

    try:
        tokens = _tokenizer(dialect).tokenize(sql)
    except (SqlglotError, ValueError, IndexError, RecursionError):
        raise UnknownSyntaxError("a quote or a comment is not closed") from None
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
            # sqlglot makes one token of keywords of several words
            for part in _PARTS.finditer(sql, start, end):
                text = part.group()
                words.append(Word("word", text.upper(), text, part.start(), part.end()))
    return sql, words


_ASCII_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
# reserved words of Oracle, which cannot be names
_ORACLE_ACTIONS: Final = frozenset({"ADD", "DROP", "MODIFY", "RENAME", "SET"})
_OPENING: Final = frozenset("([")
_CLOSING: Final = frozenset(")]")


class Cursor:
    """Reads one statement from its first word to its last.

    Attributes:
        default_table: The database, schema and name for tables that the statement names in part.
        first_table: The first table that the statement names.
    """

    def __init__(
        self, sql: str, words: Sequence[Word], dialect: str, default_table: TableId
    ) -> None:
        self.dialect = dialect
        self.default_table = default_table
        self.first_table: TableId | None = None
        self._sql = sql
        self._words = words
        last = words[-1].end if words else 0
        self._end = Word("end", "", "", last, last)
        self._at = 0

    def peek(self, ahead: int = 0) -> Word:
        """Return a word ahead of the cursor, without moving."""
        index = self._at + ahead
        return self._words[index] if 0 <= index < len(self._words) else self._end

    def next(self) -> Word:
        """Return the next word and move behind it."""
        word = self.peek()
        if word.kind == "end":
            raise UnknownSyntaxError("the statement ends too early")
        self._at += 1
        return word

    def is_at(self, *words: str) -> bool:
        """Whether the next words or symbols are these."""
        return all(self.peek(ahead).upper == word for ahead, word in enumerate(words))

    def take(self, *words: str) -> bool:
        """Move behind these words if they are next, and return whether they are."""
        if self.is_at(*words):
            self._at += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        """Move behind these words.

        Raises:
            UnknownSyntaxError: Other words are next.
        """
        if not self.take(*words):
            raise UnknownSyntaxError(f"{' '.join(words)} is missing")

    @property
    def is_at_end(self) -> bool:
        """Whether the cursor is at the end of the statement."""
        return self.peek().kind == "end"

    @property
    def is_at_element_end(self) -> bool:
        """Whether the cursor is at the end of an element of a list."""
        return self.peek().kind == "end" or self.peek().upper in {",", ")"}

    @property
    def is_at_definition_end(self) -> bool:
        """Whether the cursor is at the end of a definition (in Oracle also: at the next action)."""
        if self.is_at_element_end:
            return True
        return self.dialect == "oracle" and self.peek().upper in _ORACLE_ACTIONS

    def name(self) -> str:
        """Return a name as the database stores it."""
        word = self.next()
        match word.kind:
            case "name":
                return word.text
            case "text" if self.dialect == "mysql" and self._sql[word.start] == '"':
                return word.text  # a quoted name with sql_mode ANSI_QUOTES
            case "word" if "@" in word.text and self.dialect != "mysql":
                raise UnknownSyntaxError("a name of another database")
            case "word" if self.dialect == "postgresql":
                return word.text.translate(_ASCII_LOWER)
            case "word":
                return word.upper if self.dialect == "oracle" else word.text
            case _:
                raise UnknownSyntaxError("a name is missing")

    def table(self) -> TableId:
        """Return the name of a table; missing parts are those of the default table."""
        parts = [self.name()]
        while self.take("."):
            parts.append(self.name())
        default_table = self.default_table
        match parts:
            case [name]:
                table = TableId(default_table.database, default_table.schema, name)
            case [database, name] if self.dialect == "mysql":
                table = TableId(database, None, name)
            case [schema, name]:
                table = TableId(default_table.database, schema, name)
            case [database, schema, name] if self.dialect == "postgresql":
                table = TableId(database, schema, name)
            case _:
                raise UnknownSyntaxError("the name of a table has too many parts")
        if self.first_table is None:
            self.first_table = table
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
            if symbol in _OPENING:
                depth += 1
            elif symbol in _CLOSING:
                depth -= 1
            if depth <= 0:
                return

    def skip_element(self) -> str:
        """Move to the end of an element of a list and return its text."""
        start = self.peek().start
        while not self.is_at_element_end:
            self.skip()
        return self.text_from(start)

    def skip_all(self) -> str:
        """Move to the end of the statement and return the text up to it."""
        start = self.peek().start
        self._at = len(self._words)
        return self.text_from(start)

    def text_from(self, start: int) -> str:
        """Return the text from an index up to the word before the cursor."""
        return self._sql[start : max(start, self._words[self._at - 1].end)] if self._at else ""

    def normalised_text(self, first: int, last: int) -> str:
        """Return the text of words, with single quotes around literals and single spaces."""
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
    def index(self) -> int:
        """The number of words before the cursor."""
        return self._at
