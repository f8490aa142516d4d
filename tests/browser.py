"""The browser in which tests open what is shown."""

from __future__ import annotations

import os
import shutil

_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Its path; None where there is none, and under the sanitizers, whose library is loaded before any other: it hangs.
BROWSER = None if "LD_PRELOAD" in os.environ else next(filter(None, map(shutil.which, _NAMES)), None)
NEEDS_BROWSER = "there is no Chromium here, or none that runs"
