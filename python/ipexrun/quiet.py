"""Keeps what torch's compiler says while it works on our behalf, and the program did not ask for it, off the program's stderr."""

import contextlib
import logging
import threading
import warnings

LOGGERS = ("", "torch", "torch._dynamo", "torch._functorch", "torch._inductor", "torch.fx")


class OfThisThread(logging.Filter):
    def __init__(self):
        super().__init__()
        self.thread = threading.get_ident()

    def filter(self, record):
        return record.thread != self.thread


@contextlib.contextmanager
def quiet():
    """No warning and no log line of this thread; no code of the program's may run meanwhile."""
    handlers = [handler for name in LOGGERS for handler in logging.getLogger(name).handlers]
    handlers.append(logging.lastResort)
    ours = OfThisThread()
    for handler in handlers:
        handler.addFilter(ours)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(ours)
