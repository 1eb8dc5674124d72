"""Reads this process's own event file (configs/contract/event.h): totals and sites of the op tier."""

import os
import struct

_HEADER = struct.Struct("<QIIIiIiQQQ")  # magic schema capacity record_bytes root_pid shim_state owner_pid owner_start next lost
_RECORD = struct.Struct("<QIIQQii6q160s")  # sequence kind flags start_ns duration_ns thread reserved value[6] text
_MAGIC, _SCHEMA, _HEADER_BYTES = 0x31766E7578657069, 1, 4096
_PROCESS, _SITE, _TOTALS = 1, 3, 4
_TOTALS_FIELDS = ("calls", "taken", "declined", "saved_ns", "pack_bytes", "sites")
_SITE_FIELDS = ("calls", "taken", "declined", "stock_ns", "choice_ns", "samples")


def read_own_events():
    """{"process", "totals", "sites"} as far as they were written, or {"reason"} when this process has no event file of its own."""
    path = os.environ.get("IPEXRUN_EVENTS", "")
    try:
        with open(path, "rb") as file:
            data = file.read(_HEADER_BYTES)
            magic, schema, capacity, record_bytes, _, _, owner_pid, _, end, _ = _HEADER.unpack_from(data)
            if magic != _MAGIC or schema != _SCHEMA or record_bytes != _RECORD.size:
                return {"reason": f"not an event file of this version: {path}"}
            if owner_pid != os.getpid():
                return {"reason": f"the events belong to process {owner_pid}"}
            out = {"process": "", "totals": {}, "sites": {}}
            for number in range(max(0, end - capacity), end):
                file.seek(_HEADER_BYTES + number % capacity * record_bytes)
                _take(out, _RECORD.unpack(file.read(record_bytes)), number)
            return out
    except (OSError, struct.error) as problem:
        return {"reason": f"no events: {problem}"}


def _take(out, record, number):
    sequence, kind, values = record[0], record[1], record[7:13]
    if sequence != number + 1:  # being written at this moment
        return
    text = record[13].split(b"\0", 1)[0].decode("utf-8", "replace")
    if kind == _PROCESS:
        out["process"] = text
    elif kind == _TOTALS:
        out["totals"] = dict(zip(_TOTALS_FIELDS, values))
    elif kind == _SITE:
        site, choice, reason = (text.split("\t") + ["", ""])[:3]
        out["sites"][site] = dict(zip(_SITE_FIELDS, values), choice=choice, reason=reason)
