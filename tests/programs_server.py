"""A process that has imported torch and is forked for each program that tests/programs.py asks for. It never runs a thread of its own when it forks: a child of a
process with threads is another kind of process, to torch and to ours.

Each child becomes the program: its __main__, arguments, folder, environment and outputs, and it ends as an interpreter does."""

import atexit
import builtins
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import types


def serve(address, names):
    """What a child has to run; returns in children alone."""
    for name in names:
        importlib.import_module(name)
    if "IPEXRUN_DISABLE" in os.environ:
        import_loader()
    gc.collect()
    gc.freeze()  # a child that walks through all of this at its end takes a second for it
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    orders = connection.makefile("r", encoding="utf-8")
    for line in orders:
        threads = len(os.listdir("/proc/self/task"))
        if threads > 1:
            print(f"{threads} threads before a fork", file=sys.stderr, flush=True)
            break
        child = os.fork()
        if child == 0:
            orders.detach()
            connection.close()
            return json.loads(line)
        connection.sendall(f"{child}\n".encode())
        ended = os.pidfd_open(child)
        if ended not in select.select([ended, connection], [], [])[0]:
            os.kill(child, signal.SIGKILL)  # the tests are gone
        os.close(ended)
        connection.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())
    os._exit(0)


def import_loader():
    """What starts the plugin of the build whose launcher started this process."""
    global plugin_loader
    kept = os.environ.get("IPEXRUN_BUILD_DIR")
    os.environ["IPEXRUN_BUILD_DIR"] = os.path.dirname(os.path.dirname(os.environ["IPEXRUN_LIB_DIR"]))
    sys.path.insert(1, os.path.join(sys.path[0], "op_tier"))
    import plugin_loader

    del sys.path[1]
    os.environ.pop("IPEXRUN_BUILD_DIR")
    if kept is not None:
        os.environ["IPEXRUN_BUILD_DIR"] = kept


def become(order):
    """The module __main__ and the code of the program."""
    for output, path in enumerate(order["outputs"], 1):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, output)
        os.close(file)
    os.chdir(order["cwd"])
    for name, value in order["env"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if os.environ.pop("IPEXRUN_DISABLE", None) is not None:
        result, reason = plugin_loader.start()
        assert result == 0, reason
    sys.argv[:] = order["arguments"]
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins
    if order["code"] is None:
        main.__file__, sys.path[0] = sys.argv[0], os.path.dirname(os.path.abspath(sys.argv[0]))
        with open(sys.argv[0], "rb") as file:
            code = compile(file.read(), sys.argv[0], "exec", dont_inherit=True)
    else:
        sys.path[0], code = "", compile(order["code"], "<string>", "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    return main, code


def end(status):
    """As an interpreter ends, but that nothing is torn down, which takes 0.3 s: for programs without anything of ours."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


_order = serve(sys.argv[1], sys.argv[2].split())
_main, _code = become(_order)
try:
    exec(_code, _main.__dict__)
except SystemExit:
    raise
except BaseException as _problem:
    _problem.__traceback__ = _problem.__traceback__.tb_next  # without this file
    sys.excepthook(type(_problem), _problem, _problem.__traceback__)
    sys.exit(1)
if "_ipexrun_hook" not in sys.modules:
    end(0)
