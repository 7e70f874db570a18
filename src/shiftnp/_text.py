"""Text from files, made safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Text on one line whose control characters are written out, such as `\x1b`: a terminal obeys them otherwise."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(text.split()))


def sentence(error: BaseException) -> str:
    """What an error says. One that was not raised with a sentence for users gets its kind, too."""
    text = printable(str(error))
    if isinstance(error, ValueError | OSError | ImportError) and text:
        return text
    return f"it cannot be used ({type(error).__name__}{f': {text[:200]}' if text else ''}); its files may be damaged."
