"""Text from files and errors, escaped for printing to a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Text on one line with control characters escaped, such as `\x1b`, which a terminal would interpret."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(text.split()))


def sentence(error: BaseException) -> str:
    """The message of an error on one line; for exceptions that are not meant for users, with the exception's type."""
    text = printable(str(error))
    if isinstance(error, ValueError | OSError | ImportError) and text:
        return text
    return f"it cannot be used ({type(error).__name__}{f': {text[:200]}' if text else ''}); its files may be damaged."
