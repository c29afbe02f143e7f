# SPDX-License-Identifier: Apache-2.0
"""Files of JSON with a checksum, as the server writes them."""

from __future__ import annotations

import json
from pathlib import Path


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def write_summed(path: Path, content: dict) -> None:
    text = json.dumps({"crc32c": "0" * 8, **{key: value for key, value in content.items() if key != "crc32c"}})
    path.write_text(text.replace("0" * 8, f"{crc32c(text.encode()):08x}", 1))
