"""What of ours a forked child sets right: it has the forking thread alone, and what another one held or had changed for a while stays so for good.

Thread rule: under the interpreter lock."""

import os


def in_child(action):
    """action() in each child that is forked from now on; nothing it raises is told."""

    def act():
        try:
            action()
        except Exception:
            pass

    os.register_at_fork(after_in_child=act)


def renew(lock):
    """In a child nobody holds the lock but perhaps the thread that forked."""

    def act():
        if lock.acquire(blocking=False):
            lock.release()
        else:
            lock._at_fork_reinit()  # as the standard library does with its own

    in_child(act)
