"""A call that is traced for TorchScript is one of the program's own, and its result goes to the program. Code that asks whether it is traced (for an exporter
that takes no caches, say) would go another way in that one call; so while we trace, code of the program's is told what it is told in all other calls. torch's
own code is told the truth, which its operators need.

Thread rule: under the interpreter lock; other threads are told the truth."""

import os
import sys
import threading

import torch

tracing_state, is_tracing = torch._C._get_tracing_state, torch._C._is_tracing  # the truth
TORCHS = tuple(os.path.dirname(path) + os.sep for path in (torch.__file__, __file__))
_lock = threading.RLock()
_inside = {}  # thread: how many are inside


def _is_asked_by_the_program():
    if threading.get_ident() not in _inside:
        return False
    frame = sys._getframe(2)
    if frame.f_code.co_name == "is_tracing" and frame.f_code.co_filename.startswith(TORCHS) and frame.f_back is not None:
        frame = frame.f_back  # torch.jit.is_tracing(), whoever asks that
    return not frame.f_code.co_filename.startswith(TORCHS)


def _get_tracing_state():
    return None if _is_asked_by_the_program() else tracing_state()


def _is_tracing():
    return False if _is_asked_by_the_program() else is_tracing()


class Untraced:
    """`with Untraced():` around the program's code."""

    def __enter__(self):
        self.thread = threading.get_ident()
        with _lock:
            if not _inside:
                torch._C._get_tracing_state, torch._C._is_tracing = _get_tracing_state, _is_tracing
            _inside[self.thread] = _inside.get(self.thread, 0) + 1
        return self

    def __exit__(self, *problem):
        with _lock:
            _inside[self.thread] -= 1
            if _inside[self.thread] == 0:
                del _inside[self.thread]
            if not _inside:
                torch._C._get_tracing_state, torch._C._is_tracing = tracing_state, is_tracing
        return False
