# SPDX-License-Identifier: Apache-2.0
"""The 64-bit XXH3 checksum, without a seed, for blocks of a trace. NumPy multiplies all stripes at once, so no other
package is needed. The algorithm is Yann Collet's: github.com/Cyan4973/xxHash, doc/xxhash_spec.md."""

from __future__ import annotations

import numpy as np

_MASK = 2**64 - 1
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_STRIPE, _STRIPES, _BLOCK = 64, 16, 1024


def _u64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value = (value ^ value >> 37) * 0x165667919E3779F9 & _MASK
    return value ^ value >> 32


def _mix(data: bytes, at: int, secret: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret), _u64(data, at + 8) ^ _u64(_SECRET, secret + 8))


def _short(data: bytes) -> int:
    """17 to 128 bytes."""
    total = len(data) * _PRIME64[0]
    for pair in range((len(data) - 1) // 32 + 1):
        total += _mix(data, 16 * pair, 32 * pair) + _mix(data, len(data) - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(total & _MASK)


def _middle(data: bytes) -> int:
    """129 to 240 bytes."""
    total = len(data) * _PRIME64[0] + sum(_mix(data, 16 * i, 16 * i) for i in range(8))
    total = _avalanche(total & _MASK)
    total += sum(_mix(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, len(data) // 16))
    return _avalanche(total + _mix(data, len(data) - 16, 119) & _MASK)


def _secrets(count: int, at: int) -> np.ndarray:
    """Returns the secret's eight numbers for each of @count stripes."""
    return np.stack([np.frombuffer(_SECRET, "<u8", 8, at + 8 * i) for i in range(count)])


def _accumulate(stripes: np.ndarray, secrets: np.ndarray) -> np.ndarray:
    """Returns what stripes, [..., stripe, 8], add to the eight sums."""
    keys = stripes ^ secrets
    products = (keys & 0xFFFFFFFF) * (keys >> 32)
    swapped = stripes.reshape(*stripes.shape[:-1], 4, 2)[..., ::-1].reshape(stripes.shape)
    return (products + swapped).sum(axis=-2, dtype=np.uint64)


def _long(data: bytes) -> int:
    blocks = (len(data) - 1) // _BLOCK
    rest = (len(data) - 1 - blocks * _BLOCK) // _STRIPE
    sums = np.array([_PRIME32[2], *_PRIME64[:4], _PRIME32[1], _PRIME64[4], _PRIME32[0]], np.uint64)
    scramble = np.frombuffer(_SECRET, "<u8", 8, 128)
    whole = np.frombuffer(data, "<u8", blocks * _BLOCK // 8).reshape(blocks, _STRIPES, 8)
    for added in _accumulate(whole, _secrets(_STRIPES, 0)):
        sums = sums + added
        sums = (sums ^ sums >> 47 ^ scramble) * _PRIME32[0]
    if rest > 0:
        stripes = np.frombuffer(data, "<u8", rest * 8, blocks * _BLOCK).reshape(rest, 8)
        sums = sums + _accumulate(stripes, _secrets(rest, 0))
    last = np.frombuffer(data[-_STRIPE:], "<u8").reshape(1, 8)
    sums = [int(one) for one in sums + _accumulate(last, _secrets(1, 121))]
    total = len(data) * _PRIME64[0]
    for i in range(0, 8, 2):
        total += _fold(sums[i] ^ _u64(_SECRET, 11 + 8 * i), sums[i + 1] ^ _u64(_SECRET, 19 + 8 * i))
    return _avalanche(total & _MASK)


def xxh3_64(data: bytes) -> int:
    """Returns the checksum of @data, which has at least 17 bytes."""
    if len(data) < 17:
        raise ValueError("shorter inputs do not occur in a trace")
    if len(data) <= 128:
        return _short(data)
    return _middle(data) if len(data) <= 240 else _long(data)
