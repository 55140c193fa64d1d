"""Kernel modules that hold nothing but what they say of themselves: enough for modinfo, depmod and dkms."""

from __future__ import annotations

import struct

_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _STRTAB = 1, 3
_HEADER, _SECTION = 64, 64


def module(name: str, version: str, license_: str, *depends: str, refused: bool = False) -> bytes:
    """An ELF file with a `.modinfo`, of which no kernel would load anything; one that is `refused`, not even ours."""
    told = {"version": version, "license": license_, "depends": ",".join(depends), "name": name}
    told |= {"refused": "yes"} if refused else {}
    modinfo = b"".join(f"{key}={value}\0".encode() for key, value in told.items())
    names = b"\0.modinfo\0.shstrtab\0"
    body = [modinfo, names]
    sections = [struct.pack("<IIQQQQIIQQ", *[0] * 10)]
    at = _HEADER
    for section_name, kind, data in ((b".modinfo", _PROGBITS, modinfo), (b".shstrtab", _STRTAB, names)):
        sections.append(struct.pack("<IIQQQQIIQQ", names.index(section_name), kind, 2, 0, at, len(data), 0, 0, 1, 0))
        at += len(data)
    identity = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
    header = struct.pack("<HHIQQQIHHHHHH", _RELOCATABLE, _X86_64, 1, 0, 0, at, 0, _HEADER, 0, 0, _SECTION, 3, 2)
    return identity + header + b"".join(body) + b"".join(sections)
