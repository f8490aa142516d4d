"""Runs the Python of a page as a reader would paste it, with the installed package."""

import re
import sys
from pathlib import Path
from typing import Any

scope: dict[str, Any] = {}
snippets = re.findall(r"```python\n(.*?)```", Path(sys.argv[1]).read_text(encoding="utf-8"), flags=re.DOTALL)
for snippet in snippets:
    exec(snippet, scope)
print(f"{len(snippets)} snippets of {sys.argv[1]} ran with {scope['pm'].__file__}")
