"""A page of text, tables and figures, as one self-contained HTML file and as Markdown with image files."""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure

from shiftnp._io import write
from shiftnp._text import printable, sentence

CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 84rem;
       margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p, ul { max-width: 46rem; overflow-wrap: anywhere; }
code { background: #f2f2f2; padding: 0 .25em; border-radius: 3px; }
.scroll { overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; font-size: .85rem; font-variant-numeric: tabular-nums;
        margin: .5rem 0; }
th, td { padding: .25rem .4rem; text-align: right; white-space: nowrap; background: #fff; }
table.dense { font-size: .75rem; } .dense th, .dense td { padding: .2rem; }
tbody tr:nth-child(even) td { background: #f7f7f7; }
th { vertical-align: bottom; line-height: 1.25; }
.narrow { display: inline-block; max-width: 5.5em; white-space: normal; }
th small { display: block; font-weight: normal; }
th.group { text-align: center; white-space: normal; }
.first { text-align: left; padding-left: .2rem; position: sticky; left: 0; border-right: 1px solid #ddd; }
.begin { border-left: 1px solid #ddd; }
thead tr:first-child th { border-top: 2px solid #1a1a1a; }
tbody tr:first-child td { border-top: 1px solid #1a1a1a; }
tbody tr:last-child td { border-bottom: 2px solid #1a1a1a; }
td.quiet { color: #6b6b6b; } .error { font-size: .8em; color: #6b6b6b; }
.note, figcaption { font-size: .85rem; color: #444; max-width: 46rem; margin: .4rem 0; }
figure { margin: 1rem 0; } img { display: block; max-width: 100%; height: auto; }
img.wide { min-width: 40rem; }
.row { display: flex; flex-wrap: wrap; gap: 0 1.5rem; align-items: flex-start; }
.row figure { flex: 0 1 auto; width: min-content; min-width: min(30rem, 100%); }
@media (max-width: 40rem) { td.first, th.first { white-space: normal; min-width: 6.8rem; max-width: 8rem; } }
"""


MANY = 12
"""A table with more columns is set smaller."""
LONG = 12
"""Characters of a title of a column that fit in one line."""


class Heading(NamedTuple):
    """A heading of a section."""

    text: str


class Paragraph(NamedTuple):
    """Plain text, with `code` between backticks."""

    text: str


class Items(NamedTuple):
    """A list; each item is like a paragraph."""

    items: Sequence[str]


class Cell(NamedTuple):
    """A cell of a table. `quiet` cells are grey: the paper's results, and missing ones."""

    text: str = ""
    bold: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        head: group and title of each column; adjacent columns of one group share a heading, except those of group "".
        rows: as many cells as `head` has columns. The first column stays in view when a narrow screen scrolls.
        notes: footnotes below the table.
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
        name: file name without suffix.
        alt: alternative text for screen readers.
        caption: caption below the figure.
        drawn: whether it is a vector graphic (SVG in HTML) or a raster image (PNG).
    """

    name: str
    figure: Figure
    alt: str
    caption: str = ""
    drawn: bool = True

    @cached_property
    def png(self) -> bytes:
        """The figure as PNG."""
        memory = io.BytesIO()
        self.figure.savefig(memory, format="png", dpi=120, bbox_inches="tight", pad_inches=0.1)
        return memory.getvalue()

    @cached_property
    def svg(self) -> bytes:
        """The figure as SVG."""
        memory = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": self.name}):  # the same file for the same figure
            self.figure.savefig(memory, format="svg", metadata={"Date": None}, bbox_inches="tight", pad_inches=0.1)
        return memory.getvalue()


class Row(NamedTuple):
    """Figures side by side, or one below the other on a narrow screen."""

    pictures: Sequence[Picture | Paragraph]


Block = Heading | Paragraph | Items | Table | Picture | Row


def write_page(folder: Path, name: str, title: str, blocks: Sequence[Block]) -> tuple[Path, Path]:
    """Writes `name.html`, `name.md` and `name-figures/`, the image files of the latter. Returns the paths of the pages.

    Image files of an earlier page of the same name are removed.
    """
    figures, page, text = folder / f"{name}-figures", folder / f"{name}.html", folder / f"{name}.md"
    blocks = [checked(block) for block in blocks]
    single = [one for block in blocks for one in (block.pictures if isinstance(block, Row) else [block])]
    pictures = {figures / f"{block.name}.png": block.png for block in single if isinstance(block, Picture)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if pictures:
            figures.mkdir(exist_ok=True)
        for path, content in pictures.items():
            write(path, content)
        write(page, to_html(title, blocks))
        write(text, to_markdown(title, blocks, figures.name))
        for old in set(figures.glob("*.png")) - pictures.keys():
            old.unlink(missing_ok=True)
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{folder} cannot be written ({why}): name another folder with --out.") from error
    return page, text


def checked(block: Block) -> Block:
    """The block, with a paragraph in place of each figure that cannot be drawn, so that the page is still written."""
    match block:
        case Picture():
            return _drawn(block)
        case Row(pictures):
            return Row([_drawn(one) if isinstance(one, Picture) else one for one in pictures])
    return block


def _drawn(picture: Picture) -> Picture | Paragraph:
    """The figure, or a paragraph with the error if it cannot be drawn."""
    try:
        _ = picture.png, picture.svg if picture.drawn else None
    except Exception as error:
        return Paragraph(f"The picture {picture.name} could not be drawn: {sentence(error)}")
    return picture


# --- Markdown ---------------------------------------------------------------------------------------------------------


def to_markdown(title: str, blocks: Sequence[Block], figures: str) -> str:
    """The page as Markdown, with figures as PNG files in the folder `figures` beside it."""
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
            case Row(pictures):
                parts.append(to_markdown("", pictures, figures).removeprefix("# ").strip())
    return "\n\n".join(parts) + "\n"


def _table_markdown(table: Table) -> str:
    head = [_mark(f"{group}, {title}" if group and title else group or title) for group, title in table.head]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for row in table.rows:
        lines.append([f"**{_mark(cell.text)}**" if cell.bold else _mark(cell.text) for cell in row])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mark(text: str) -> str:
    """Text with Markdown's special characters escaped, except in code."""
    parts = printable(text).split("`")
    code = len(parts) % 2  # an unpaired backtick is not code
    for i in range(0, len(parts), 2 if code else 1):
        parts[i] = re.sub(r"([\\*|<\[\]])", r"\\\1", parts[i])
    return ("`" if code else "\\`").join(parts)


# --- HTML -------------------------------------------------------------------------------------------------------------


def to_html(title: str, blocks: Sequence[Block]) -> str:
    """The page as one self-contained HTML file."""
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
            case Row(pictures):
                inner = (_picture_html(p) if isinstance(p, Picture) else f"<p>{_escape(p.text)}</p>" for p in pictures)
                parts.append(f'<div class="row">{"".join(inner)}</div>')
    head = '<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">'
    head += f"\n<title>{html.escape(printable(title))}</title>\n<style>{CSS}</style>"
    body = "\n".join(parts)
    return f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'


def _table_html(table: Table) -> str:
    """The first column has class `first`, the first of each group `begin`; long titles are broken into lines."""
    upper, lower = "", ""
    classes: list[str] = []  # of all cells of each column
    grouped = any(group for group, _ in table.head)
    for group, members in groupby(table.head, key=lambda column: column[0]):
        titles = [title for _, title in members]
        if group:
            upper += f'<th class="group begin" colspan="{len(titles)}">{_escape(group)}</th>'
        for i, title in enumerate(titles):
            classes.append("first" if not classes else "begin" if group and i == 0 else "")
            text = re.sub(r" (\(.*\))$", r" <small>\1</small>", _escape(title))
            text = f'<span class="narrow">{text}</span>' if len(title) > LONG else text
            if group or not grouped:
                lower += f"<th{_class(classes[-1])}>{text}</th>"
            else:
                upper += f'<th{_class(classes[-1])} rowspan="2">{text}</th>'
    head = "".join(f"<tr>{line}</tr>\n" for line in (upper, lower) if line)
    rows = ("".join(map(_cell_html, row, classes)) for row in table.rows)
    body = "".join(f"<tr>{row}</tr>\n" for row in rows)
    dense = ' class="dense"' if len(classes) > MANY else ""
    return f'<div class="scroll"><table{dense}>\n<thead>\n{head}</thead>\n<tbody>\n{body}</tbody>\n</table></div>'


def _cell_html(cell: Cell, column: str) -> str:
    value, plus_minus, error = _escape(cell.text).partition(" ± ")
    text = f"<b>{value}</b>" if cell.bold else value
    if plus_minus:
        text += f' <span class="error">± {error}</span>'
    return f"<td{_class(column, 'quiet' if cell.quiet else '')}>{text}</td>"


def _class(*names: str) -> str:
    used = " ".join(filter(None, names))
    return f' class="{used}"' if used else ""


def _picture_html(picture: Picture) -> str:
    kind, data = ("svg+xml", picture.svg) if picture.drawn else ("png", picture.png)
    inches = picture.figure.get_size_inches()[0]
    wide = ' class="wide"' if inches > 8 else ""  # on a phone it scrolls instead of shrinking
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    size = f' style="width: {inches * 6:.0f}rem"'
    image = f'<img{wide}{size} alt="{html.escape(printable(picture.alt))}" src="{source}">'
    caption = f"<figcaption>{_escape(picture.caption)}</figcaption>" if picture.caption else ""
    return f'<figure><div class="scroll">{image}</div>{caption}</figure>'


def _escape(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(printable(text)))
