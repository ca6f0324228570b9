"""The user's own folders, by the XDG base directory specification."""

import os
from pathlib import Path


def caches() -> Path | None:
    """None for a user that has no home, which is usual in containers."""
    return _folder("XDG_CACHE_HOME", ".cache")


def configuration() -> Path | None:
    """None for a user that has no home."""
    return _folder("XDG_CONFIG_HOME", ".config")


def _folder(variable: str, usual: str) -> Path | None:
    named = os.environ.get(variable)
    if named:
        return Path(named)
    try:
        return Path.home() / usual
    except RuntimeError:
        return None
