"""The seed of an official run: secret, and the same whenever the same submission is judged again.

It is derived from a secret of the course and the hash of what was captured, so that a regrade repeats the same
inputs and a student can't foresee them. The secret is made when it is first needed.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path

from grader.gpu import user_folders
from grader.messages import _
from grader.verdict import Finding, Unavailable


def secret_file() -> Path:
    """TILELAB_SECRET, or a file in the user's configuration folder. Raises Unavailable if there is neither."""
    configured = os.environ.get("TILELAB_SECRET")
    if configured:
        return Path(configured)
    base = user_folders.configuration()
    if base is None:
        raise Unavailable(
            Finding(
                _("There is no place for the secret of official runs: you have no home folder."),
                _("Name a file for it: TILELAB_SECRET=FILE."),
            )
        )
    return Path(base, "tilelab", "secret")


def seed_for(capture_sha256: str) -> str:
    """The seed for one captured submission."""
    return hmac.new(_secret(), capture_sha256.encode(), hashlib.sha256).hexdigest()


def _secret() -> bytes:
    """Raises Unavailable if the file is empty: a seed of nothing could be foreseen."""
    path = secret_file()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(path)
    secret = path.read_text().strip()
    if not secret:
        raise Unavailable(
            Finding(
                _("The file with the secret of official runs is empty: {path}.").format(path=path),
                _("Restore it from a copy. Or delete it: a new one is made, and regrades draw other inputs."),
            )
        )
    return secret.encode()


def _make(path: Path) -> None:
    """Writes a new secret, unless another process was first: the file appears with its content, or not at all."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        os.unlink(draft)
