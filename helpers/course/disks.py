"""Disks without locks or without room, for one process: Linux answers its calls as such a disk does (seccomp)."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

# Numbers of the system calls that HDF5 locks and writes with (linux/unistd.h).
_FLOCK = {"x86_64": 73, "aarch64": 32}
_PWRITE64 = {"x86_64": 18, "aarch64": 68}

# The filter is a program of the kernel's packet filter: load the number of the call; if it is the one, answer with an
# error, else let it pass. Instructions are (code, jump if true, jump if false, value), see linux/filter.h.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ANSWER_ERROR, _LET_PASS = 0x0005_0000, 0x7FFF_0000
_NO_NEW_PRIVILEGES, _SET_FILTER, _MODE_FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def refuse_locks(number: int = errno.ENOLCK) -> None:
    """Make every file lock of this process fail with errno ``number`` from now on.

    Call it in a child: it cannot be undone.

    Raises
    ------
    OSError
        This system has no such filter (not Linux, another processor), or does not allow it.
    """
    _refuse(_FLOCK, number)


def refuse_writes(number: int = errno.ENOSPC) -> None:
    """Make HDF5's writes to files fail with errno ``number`` from now on, as on a full disk; otherwise as above."""
    _refuse(_PWRITE64, number)


def _refuse(calls: dict[str, int], number: int) -> None:
    call = calls.get(platform.machine()) if platform.system() == "Linux" else None
    if call is None:
        raise OSError(errno.ENOSYS, "such a disk can be played on Linux (x86_64, aarch64) only.")
    steps = ((_LOAD, 0, 0, 0), (_JUMP_IF_EQUAL, 0, 1, call), (_RETURN, 0, 0, _ANSWER_ERROR | number))
    code = ctypes.create_string_buffer(
        b"".join(struct.pack("HBBI", *step) for step in (*steps, (_RETURN, 0, 0, _LET_PASS)))
    )
    program = _Program(len(steps) + 1, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for request in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_FILTER, _MODE_FILTER, ctypes.byref(program), 0, 0)):
        if libc.prctl(*request):
            raise OSError(ctypes.get_errno(), "this system does not allow a process to filter its own system calls.")
