"""Writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from onbeat._errors import OnbeatError


def write_whole(path: str | os.PathLike[str], content: bytes) -> Path:
    """Writes a file under another name, renames it, and returns its path."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with open(beside, "xb") as file:
            file.write(content)
        os.replace(beside, target)
    except OSError as error:
        raise OnbeatError(f"cannot write {target}: {error.strerror}.") from error
    finally:
        beside.unlink(missing_ok=True)
    return target
