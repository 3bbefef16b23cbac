"""Names as a person writes them: ``ring,direct``."""

from __future__ import annotations

import argparse


def name_list(text: str) -> list[str]:
    """Parses ``ring,direct`` into ``["ring", "direct"]``; for use as an argparse type."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r}: write names like ring,direct")
    return list(dict.fromkeys(names))
