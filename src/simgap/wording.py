"""How numbers stand in a sentence."""

from __future__ import annotations


def number_of(count: int, thing: str, things: str = "") -> str:
    """Return ``1 episode`` or ``3 episodes``; ``things`` is the plural where it takes more than an s."""
    return f"{count} {thing if count == 1 else things or thing + 's'}"
