#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py IN OUT: writes the bytes of a file as the C array `console_html`, for the build."""

import sys
from pathlib import Path

content = Path(sys.argv[1]).read_bytes()
lines = [", ".join(map(str, content[i : i + 32])) for i in range(0, len(content), 32)]
body = ",\n    ".join(lines)
Path(sys.argv[2]).write_text(
    f'#include "daemon/http/console/console.h"\n\n'
    f"const char console_html[] = {{\n    {body}\n}};\nconst size_t console_html_bytes = {len(content)};\n"
)
