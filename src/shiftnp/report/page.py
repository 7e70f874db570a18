"""A page of text, tables and pictures, as one HTML file that needs nothing else and as Markdown with picture files."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure

from shiftnp._io import write

CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 68rem;
       margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p, ul { max-width: 46rem; } code { background: #f2f2f2; padding: 0 .25em; border-radius: 3px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin: .5rem 0; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
thead { border-top: 2px solid #1a1a1a; border-bottom: 1px solid #1a1a1a; }
tbody { border-bottom: 2px solid #1a1a1a; } tbody tr:nth-child(even) { background: #f7f7f7; }
th.group { text-align: center; } td.quiet { color: #6b6b6b; }
.note, figcaption { font-size: .85rem; color: #444; max-width: 46rem; }
figure { margin: 1rem 0; } img { display: block; max-width: 100%; height: auto; }
img.wide { min-width: 40rem; }
"""


class Heading(NamedTuple):
    text: str


class Paragraph(NamedTuple):
    """Plain text, with `code` between backticks."""

    text: str


class Items(NamedTuple):
    """A list; each item is like a paragraph."""

    items: Sequence[str]


class Cell(NamedTuple):
    """Of a table. What is `quiet` is there for comparison: the paper's figures, and what is missing."""

    text: str = ""
    bold: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        head: title of each column, and before it the title of the columns it belongs to, or nothing.
        rows: as many cells as `head` has columns.
        notes: beneath it.
    """

    head: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"a row of this table must have {len(self.head)} cells, got {len(row)}.")


@dataclass(frozen=True)
class Picture:
    """A figure.

    Args:
        name: of its file, without suffix.
        alt: what it shows, for those who cannot see it.
        caption: how to read it.
        drawn: made of lines (SVG in HTML), not of pixels (PNG).
    """

    name: str
    figure: Figure
    alt: str
    caption: str = ""
    drawn: bool = True

    def png(self) -> bytes:
        memory = io.BytesIO()
        self.figure.savefig(memory, format="png", dpi=120)
        return memory.getvalue()

    def svg(self) -> bytes:
        memory = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": self.name}):  # the same file for the same figure
            self.figure.savefig(memory, format="svg", metadata={"Date": None})
        return memory.getvalue()


Block = Heading | Paragraph | Items | Table | Picture


def write_page(folder: Path, name: str, title: str, blocks: Sequence[Block]) -> tuple[Path, Path]:
    """Writes `name.html`, `name.md` and, for the latter, `name-figures/` with no other pictures. Returns both pages."""
    figures = folder / f"{name}-figures"
    folder.mkdir(parents=True, exist_ok=True)
    used = set()
    for block in blocks:
        if isinstance(block, Picture):
            figures.mkdir(exist_ok=True)
            used.add(figures / f"{block.name}.png")
            write(figures / f"{block.name}.png", block.png())
    page, text = folder / f"{name}.html", folder / f"{name}.md"
    write(page, to_html(title, blocks))
    write(text, to_markdown(title, blocks, figures.name))
    for old in set(figures.glob("*.png")) - used:  # of an earlier page
        old.unlink(missing_ok=True)
    return page, text


# --- Markdown ---------------------------------------------------------------------------------------------------------


def to_markdown(title: str, blocks: Sequence[Block], figures: str) -> str:
    """The page as Markdown, whose pictures are PNG files in the folder `figures` beside it."""
    parts = [f"# {_mark(title)}"]
    for block in blocks:
        match block:
            case Heading(text):
                parts.append(f"## {_mark(text)}")
            case Paragraph(text):
                parts.append(_mark(text))
            case Items(items):
                parts.append("\n".join(f"- {_mark(item)}" for item in items))
            case Table():
                parts += [_table_markdown(block), *(f"*{_mark(note)}*" for note in block.notes)]
            case Picture():
                parts.append(f"![{_mark(block.alt)}]({figures}/{block.name}.png)")
                parts += [f"*{_mark(block.caption)}*"] if block.caption else []
    return "\n\n".join(parts) + "\n"


def _table_markdown(table: Table) -> str:
    head = [_mark(f"{group}, {title}" if group and title else group or title) for group, title in table.head]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for row in table.rows:
        lines.append([f"**{_mark(cell.text)}**" if cell.bold else _mark(cell.text) for cell in row])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mark(text: str) -> str:
    """Text with what Markdown would take for markup made harmless, but for code."""
    parts = " ".join(text.split()).split("`")
    code = len(parts) % 2  # a backtick without its partner is no code
    for i in range(0, len(parts), 2 if code else 1):
        parts[i] = re.sub(r"([\\*|<\[\]])", r"\\\1", parts[i])
    return ("`" if code else "\\`").join(parts)


# --- HTML -------------------------------------------------------------------------------------------------------------


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """The page as one HTML file that loads nothing."""
    parts = [f"<h1>{_escape(title)}</h1>"]
    for block in blocks:
        match block:
            case Heading(text):
                parts.append(f"<h2>{_escape(text)}</h2>")
            case Paragraph(text):
                parts.append(f"<p>{_escape(text)}</p>")
            case Items(items):
                parts.append("<ul>" + "".join(f"<li>{_escape(item)}</li>" for item in items) + "</ul>")
            case Table():
                parts.append(_table_html(block))
                parts += [f'<p class="note">{_escape(note)}</p>' for note in block.notes]
            case Picture():
                parts.append(_picture_html(block))
    head = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"\n<title>{html.escape(title)}</title>\n<style>{CSS}</style>"
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _table_html(table: Table) -> str:
    lines = []
    if any(group for group, _ in table.head):
        cells = []
        for group, members in groupby(table.head, key=lambda column: column[0]):
            cells.append(f'<th class="group" colspan="{len(list(members))}">{_escape(group)}</th>')
        lines.append("".join(cells))
    lines.append("".join(f"<th>{_escape(title)}</th>" for _, title in table.head))
    head = "".join(f"<tr>{line}</tr>\n" for line in lines)
    body = "".join(f"<tr>{''.join(map(_cell_html, row))}</tr>\n" for row in table.rows)
    return f'<div class="scroll"><table>\n<thead>\n{head}</thead>\n<tbody>\n{body}</tbody>\n</table></div>'


def _cell_html(cell: Cell) -> str:
    text = f"<b>{_escape(cell.text)}</b>" if cell.bold else _escape(cell.text)
    return f'<td class="quiet">{text}</td>' if cell.quiet else f"<td>{text}</td>"


def _picture_html(picture: Picture) -> str:
    kind, data = ("svg+xml", picture.svg()) if picture.drawn else ("png", picture.png())
    inches = picture.figure.get_size_inches()[0]
    wide = ' class="wide"' if inches > 8 else ""  # better scrolled on a phone than too small to read
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    size = f' style="width: {inches * 6:.0f}rem"'
    image = f'<img{wide}{size} alt="{html.escape(picture.alt)}" src="{source}">'
    caption = f"<figcaption>{_escape(picture.caption)}</figcaption>" if picture.caption else ""
    return f'<figure><div class="scroll">{image}</div>{caption}</figure>'


def _escape(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))
