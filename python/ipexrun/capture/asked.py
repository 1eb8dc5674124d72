"""A call that is traced for TorchScript is one of the program's own. Code that asks whether it is traced goes another way in that one call (for an exporter that
takes no caches, say), so what it gives is not what the program would get; that it asked is noted here.

Thread rule: under the interpreter lock; what other threads ask is not noted."""

import os
import sys
import threading

import torch

from .. import forks

tracing_state, _is_tracing = torch._C._get_tracing_state, torch._C._is_tracing  # asked by these, nothing is noted
TORCHS = tuple(os.path.dirname(path) + os.sep for path in (torch.__file__, os.path.dirname(__file__)))  # code of torch and of ours
_lock = threading.RLock()
forks.renew(_lock)
_inside = {}  # thread: its Asked


def _note():
    asked = _inside.get(threading.get_ident())
    if asked is None:
        return
    frame = sys._getframe(2)
    if frame.f_code.co_name == "is_tracing" and frame.f_code.co_filename.startswith(TORCHS) and frame.f_back is not None:
        frame = frame.f_back  # torch.jit.is_tracing(), whoever asks that
    if not frame.f_code.co_filename.startswith(TORCHS):
        asked.by_the_program = True


def _get_tracing_state():
    _note()
    return tracing_state()


def _asks_is_tracing():
    _note()
    return _is_tracing()


class Asked:
    """`with Asked() as asked:` around the program's code; `asked.by_the_program` tells whether code that is not torch's asked."""

    def __enter__(self):
        self.by_the_program = False
        self.thread = threading.get_ident()
        with _lock:
            if not _inside:
                torch._C._get_tracing_state, torch._C._is_tracing = _get_tracing_state, _asks_is_tracing
            self.outer, _inside[self.thread] = _inside.get(self.thread), self
        return self

    def __exit__(self, *problem):
        with _lock:
            if self.outer is None:
                del _inside[self.thread]
            else:
                _inside[self.thread] = self.outer
            if not _inside:
                torch._C._get_tracing_state, torch._C._is_tracing = tracing_state, _is_tracing
        return False
