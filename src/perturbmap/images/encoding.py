"""Pictures as the bytes of a file."""

from __future__ import annotations

import io
from typing import Any


def encode(picture: Any, kind: str, **options: Any) -> bytes:
    """What a file of the kind "PNG" or "JPEG" holds.

    Where Pillow writes into a file by itself, it does not notice that a full disk took a part of it alone.
    """
    buffer = io.BytesIO()
    picture.save(buffer, format=kind, **options)
    return buffer.getvalue()
