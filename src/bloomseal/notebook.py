"""Reports as notebooks show them: plain data as HTML tables, every text escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_MOST_ROWS: Final = 50
_MOST_CHARACTERS: Final = 500


class ShownInNotebooks:
    """A report with a `to_dict` that Jupyter shows as tables.

    Names of columns and files come from whoever wrote the file: they are escaped, and so is every character that is not
    printable (controls, line ends, U+202E, which reverses a text).
    """

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return dict(self.__dict__)

    def shown(self) -> dict[str, Any]:
        """What is shown: plain data, in which a list of dicts becomes a table of its own."""
        return self.to_dict()

    def _repr_html_(self) -> str:
        told = self.shown()
        single = {name: value for name, value in told.items() if not _is_rows(value)}
        parts = [f"<h4>{_text(type(self).__name__)}</h4>", _table(None, [list(pair) for pair in single.items()])]
        for name, rows in told.items():
            if _is_rows(rows):
                columns = list(dict.fromkeys(key for row in rows for key in row))
                cells = [[row.get(column) for column in columns] for row in rows[:_MOST_ROWS]]
                parts.append(f"<h5>{_text(name)}</h5>{_table(columns, cells)}")
                if len(rows) > _MOST_ROWS:
                    parts.append(f"<p>and {len(rows) - _MOST_ROWS} more: to_dict() has all</p>")
        return f"<div>{''.join(parts)}</div>"


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _table(columns: Sequence[str] | None, rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in columns or ())
    body = "".join(f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def _text(value: Any) -> str:
    from html import escape  # takes longer to load than most reports to make

    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case Mapping():
            text = ", ".join(f"{name}: {item}" for name, item in value.items())
        case list() | tuple():
            text = ", ".join(map(str, value))
        case _:
            text = str(value)
    if len(text) > _MOST_CHARACTERS:
        text = text[:_MOST_CHARACTERS] + "…"
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    return escape(shown)
