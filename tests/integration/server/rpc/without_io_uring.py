# SPDX-License-Identifier: Apache-2.0
"""Runs a program for which the system refuses io_uring, as the filters of many containers do.

python3 without_io_uring.py ERROR PROGRAM [ARGUMENT...]    ERROR is the errno name that io_uring_setup() gets, such as EPERM
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_IO_URING_SETUP = 425  # on all architectures but Alpha
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # classic BPF: linux/bpf_common.h
_RET_ERRNO, _RET_ALLOW = 0x50000, 0x7FFF0000  # linux/seccomp.h
_PR_SET_SECCOMP, _MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38


class _Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def refuse_io_uring(error: int) -> None:
    """For this process and all that it starts, until they end."""
    instructions = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD_WORD, 0, 0, 0),  # the call's number
            (_JUMP_IF_EQUAL, 0, 1, _IO_URING_SETUP),
            (_RETURN, 0, 0, _RET_ERRNO | error),
            (_RETURN, 0, 0, _RET_ALLOW),
        )
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(instructions) // 8, instructions)
    for call in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse_io_uring(getattr(errno, sys.argv[1]))
    os.execv(sys.argv[2], sys.argv[2:])
