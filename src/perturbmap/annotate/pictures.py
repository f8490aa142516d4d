"""Photos and masks as the page shows them: small, or as large as a screen can use."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from perturbmap.annotate.folder import AnnotationFolder
from perturbmap.images.encoding import encode
from perturbmap.images.reading import Path_, open_image, read_image
from perturbmap.images.superpixels import stretch
from perturbmap.support.files import write_atomically

LARGEST_SIDE = 2560  # pixels; beyond it, the page shows a photo in this size, and masks on disk keep theirs
THUMB_SIDE = 192


def shown_size(size: tuple[int, int], largest: int = LARGEST_SIDE) -> tuple[int, int]:
    """(height, width) in which a photo of some size is shown."""
    scale = min(1.0, largest / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def picture(path: Path_) -> bytes:
    """A photo as JPEG, upright, as large as the page shows it; `ImageError` where it is broken."""
    return encode(_reduced(path, LARGEST_SIDE), "JPEG", quality=92)


def thumbnail(folder: AnnotationFolder, name: str) -> bytes:
    """A photo as a small JPEG, which is kept as long as the photo does not change."""
    source, kept = folder.path(name), folder.cache / "thumbs" / f"{name}.jpg"
    if not _is_newer(kept, source):
        kept.parent.mkdir(exist_ok=True)
        content = encode(_reduced(source, THUMB_SIDE), "JPEG", quality=80)
        write_atomically(kept, lambda file: file.write(content))
    return kept.read_bytes()


def mask_text(mask: NDArray[np.uint8], size: tuple[int, int]) -> str:
    """A mask of labels in the size that is shown, as the base64 text of a grey PNG."""
    return png_text(stretch(mask, shown_size(size)))


def png_text(grey: NDArray[np.uint8]) -> str:
    """A grey picture as the base64 text of a PNG, packed quickly rather than well."""
    return base64.b64encode(encode(Image.fromarray(grey), "PNG", compress_level=1)).decode()


def _reduced(path: Path_, largest: int) -> Any:
    image = open_image(path)
    if image.mode != "RGB":  # grey of 16 bits and transparency as the segmenter sees them
        image = Image.fromarray(np.rint(255 * read_image(path)).astype(np.uint8))
    height, width = shown_size((image.height, image.width), largest)
    return image if width == image.width else image.resize((width, height), Image.Resampling.LANCZOS)


def _is_newer(file: Path, source: Path) -> bool:
    try:
        return file.stat().st_mtime >= source.stat().st_mtime
    except FileNotFoundError:
        return False
