"""What the site needs beyond Markdown that also reads well on a code host; mkdocs calls these functions.

- Links to files outside of docs/ become links to the repository; pictures outside of docs/ are copied into the site.
- `<!-- source: examples/co2.py -->` becomes the text of that file, folded.
- `<!-- help: data preview -->` becomes the output of `shiftnp data preview --help`.
- Formulas become MathML, which browsers show without a script.
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import posixpath
import re
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

from latex2mathml.converter import convert
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^ *```.*?^ *```|<!-- (?:help|source): .*? -->)", re.DOTALL | re.MULTILINE)
WIDTH = 80
log = get_plugin_logger("site")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pictures outside of docs/ that pages show."""
    for page in list(files.documentation_pages()):
        for image, _, target in LINK.findall(page.content_string):
            path = outside(page.src_uri, target)
            if image and path and not files.get_file_from_path(f"pictures/{path}"):
                files.append(File.generated(config, f"pictures/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes links outside of docs/ and fills in sources and help texts."""
    here = page.file.src_uri

    def link(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        path = outside(here, target)
        if path is None:
            return found[0]
        if not (ROOT / path).exists():
            log.warning(f"{here} links to {target}, which does not exist.")
        if image:
            return f"![{text}]({posixpath.relpath(f'pictures/{path}', posixpath.dirname(here))})"
        return f"[{text}]({REPOSITORY}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path})"

    parts = FENCE.split(markdown)  # code is every second part
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    parts[1::2] = [fill(part) for part in parts[1::2]]
    return "".join(parts)


def on_page_content(html_text: str, **_: Any) -> str:
    """Formulas as MathML."""

    def formula(found: re.Match[str]) -> str:
        display = "block" if found[1] == "div" else "inline"
        return convert(html.unescape(found[2]), display=display)

    return re.sub(r'<(div|span) class="arithmatex">\\[\[(](.*?)\\[\])]</\1>', formula, html_text, flags=re.DOTALL)


def outside(page: str, target: str) -> str | None:
    """The path from the root of the repository of a link's target, if it is outside of docs/."""
    if re.match(r"[a-z]+:|#|/", target):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target.partition("#")[0]))
    return None if path.startswith("docs/") else path


def fill(part: str) -> str:
    """A marker's text, or the part as it is."""
    found = re.fullmatch(r"<!-- (help|source): (.*?) -->", part)
    if found is None:
        return part
    if found[1] == "source":
        code = (ROOT / found[2]).read_text().rstrip()
        indented = "\n".join(f"    {line}".rstrip() for line in code.splitlines())
        return f'??? example "{found[2]}"\n    ```python\n{indented}\n    ```\n'
    return f"```text\n{help_text(found[2].split())}\n```"


def help_text(command: list[str]) -> str:
    """What `shiftnp COMMAND --help` prints on a plain terminal."""
    from shiftnp.cli import main

    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["shiftnp", *command, "--help"]),
        mock.patch.dict(os.environ, {"COLUMNS": str(WIDTH), "TERM": "dumb"}),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        main()
    lines = [line.rstrip() for line in printed.getvalue().splitlines() if not re.fullmatch(r" *-+ *", line)]
    return "\n".join("\n".join(textwrap.wrap(line, WIDTH)) if line[:1].isalpha() else line for line in lines).strip()
