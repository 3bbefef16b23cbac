"""Names and sizes as a person writes them: ``ring,direct``, ``4GB``; argparse types."""

from __future__ import annotations

import argparse

from tnt_notebook.sizes import parsed_size


def name_list(text: str) -> list[str]:
    """Parses ``ring,direct`` into ``["ring", "direct"]``; for use as an argparse type."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: write names like ring,direct")
    return list(dict.fromkeys(names))


def byte_count(text: str) -> int:
    """Parses ``4GB`` into bytes; for use as an argparse type."""
    try:
        return parsed_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
