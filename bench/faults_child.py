"""The victim of faults.py: infers with a few models, compares every result with what stock made of it, and does what it is asked to.

Usage: faults_child.py JSON, {"seed", "seconds", "do", "moment"}. It says "ready PID" when it computes, "ok N" after N right results. Exit code 3: a result was
wrong. The rest depends on `do`; each function below says what it ends with.
"""

import ctypes
import faulthandler
import json
import os
import random
import resource
import signal
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import soak_calls  # noqa: E402
import soak_life  # noqa: E402
import torch  # noqa: E402
import zoo_rule  # noqa: E402
from soak_check import Tier, compare  # noqa: E402

WRONG = 3


class Victim:
    def __init__(self, request):
        self.request, self.rng = request, random.Random(request["seed"])
        self.tier = Tier()
        if request["needs_tier"] and not self.tier.there:
            sys.exit("faults_child.py: no op tier in this process")
        self.models = []
        for name in self.rng.sample(list(soak_calls.OWN), 3):
            torch.manual_seed(request["seed"])
            model, inputs_of = soak_calls.OWN[name](soak_calls.Draw(self.rng.getrandbits(31)))
            model.eval()
            inputs = [inputs_of(soak_calls.Draw(self.rng.getrandbits(31))) for _ in range(3)]
            with self.tier.off(), torch.no_grad():
                self.models.append([(name, model, one, zoo_rule.tensors_of(model(**one))) for one in inputs])
        self.right = 0
        self.lock = threading.Lock()

    def call(self, rng):
        name, model, inputs, stock = rng.choice(rng.choice(self.models))
        with torch.no_grad():
            result = zoo_rule.tensors_of(model(**inputs))
        wrong, _ = compare(result, stock, None, "auto", True)
        if wrong:
            print(f"wrong: {name}: {wrong}", flush=True)
            os._exit(WRONG)
        with self.lock:
            self.right += 1

    def ready(self):
        rng = random.Random(self.request["seed"] + 1)
        for _ in range(5):
            self.call(rng)
        print(f"ready {os.getpid()}", flush=True)

    def compute(self, seconds=None):
        until = time.monotonic() + (self.request["seconds"] if seconds is None else seconds)
        while time.monotonic() < until:
            self.call(self.rng)

    def in_threads(self, count):
        """Daemon threads that compute until the process ends."""
        for i in range(count):
            rng = random.Random(self.request["seed"] + i)

            def work(rng=rng):
                while True:
                    self.call(rng)

            threading.Thread(target=work, daemon=True).start()

    # ---- what is asked for ---------------------------------------------------------------------------------------------------------------

    def plain(self):
        """0."""
        self.compute()

    def threads(self):
        """Computes in four threads for the given time; 0."""
        until = time.monotonic() + self.request["seconds"]
        working = []
        for i in range(4):
            rng = random.Random(self.request["seed"] + i)

            def work(rng=rng):
                while time.monotonic() < until:
                    self.call(rng)

            working.append(threading.Thread(target=work))
            working[-1].start()
        for thread in working:
            thread.join()

    def os_exit(self):
        """In the middle of other threads' calls; 7."""
        self.in_threads(2)
        time.sleep(self.request["moment"])
        os._exit(7)

    def sys_exit(self):
        """With calls of this thread behind it; 8."""
        self.compute(self.request["moment"])
        sys.exit(8)

    def uncaught(self):
        """An exception of a hook inside a model's forward; Python's own exit code, 1."""
        _, model, inputs, _ = self.rng.choice(self.rng.choice(self.models))
        self.compute(self.request["moment"])

        def raising(*_):
            raise RuntimeError("a hook of the victim")

        list(model.modules())[-1].register_forward_hook(raising)
        with torch.no_grad():
            model(**inputs)

    def abort(self):
        """In the middle of other threads' calls; 134."""
        faulthandler.disable()
        self.in_threads(2)
        time.sleep(self.request["moment"])
        os.abort()

    def forks(self):
        """Children are forked while another thread computes; some are killed. 0."""
        until = time.monotonic() + self.request["seconds"]
        thread, problems = soak_life.busy(lambda: self.call(random.Random(1)), lambda: time.monotonic() < until)
        while time.monotonic() < until:
            killed = self.rng.random() < 0.3
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    torch.set_num_threads(1)
                    with self.tier.off():
                        self.call(random.Random(1))  # what hangs here hangs with stock as well
                    self.compute(0.2 if not killed else 60)
                    code = 0
                finally:
                    os._exit(code)
            if killed:
                time.sleep(self.rng.random() * 0.3)
                os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code != (-signal.SIGKILL if killed else 0):
                sys.exit(f"a forked child ended with {code}")
        thread.join()
        if problems:
            sys.exit(f"the thread beside the forks: {problems}")

    def server(self):
        """Pre-forked workers; one is killed and replaced. 0."""
        def start():
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    torch.set_num_threads(1)
                    self.compute(60)
                finally:
                    os._exit(code)
            return child

        workers = [start() for _ in range(3)]
        until = time.monotonic() + self.request["seconds"]
        while time.monotonic() < until:
            time.sleep(0.2)
            victim = self.rng.randrange(len(workers))
            os.kill(workers[victim], signal.SIGKILL)
            if (code := os.waitstatus_to_exitcode(os.waitpid(workers[victim], 0)[1])) != -signal.SIGKILL:
                sys.exit(f"a worker ended with {code}")
            workers[victim] = start()
            self.compute(0.1)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
            os.waitpid(worker, 0)

    def loader(self):
        """A worker of a DataLoader is killed: stock's error (the worker's end, or that of its connection), and the program goes on. 0."""
        data = soak_life.Rows(torch.randn(32, 16, 3), [torch.randn(16, 64) for _ in range(400)])
        loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, timeout=60)
        batches = iter(loader)
        next(batches)
        worker = batches._workers[0]
        worker.kill()
        try:
            for _ in batches:
                pass
            sys.exit("nobody missed the worker")
        except (RuntimeError, OSError, EOFError) as problem:
            if isinstance(problem, RuntimeError) and "worker" not in str(problem):
                raise
        del batches
        self.compute(self.request["seconds"])

    def memory(self):
        """No more address space than a little above what it has, again and again, while weights are packed: a call ends right, or
        as stock ends it, for want of memory. 0."""
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        until = time.monotonic() + self.request["seconds"]
        failed = 0
        while time.monotonic() < until:
            with open("/proc/self/statm", encoding="ascii") as file:
                now = int(file.read().split()[0]) * resource.getpagesize()
            wide = self.rng.choice((512, 1024, 2048, 3072))
            x, weight = torch.randn(16, wide), torch.randn(wide, wide)
            with self.tier.off():
                stock = x @ weight
            resource.setrlimit(resource.RLIMIT_AS, (now + self.rng.randrange(1 << 20, 64 << 20), hard))
            try:
                results = []
                for _ in range(4):
                    try:
                        results.append(x @ weight)
                        self.call(self.rng)
                    except (MemoryError, RuntimeError) as problem:
                        if isinstance(problem, RuntimeError) and not any(word in str(problem) for word in ("memory", "primitive", "alloc")):
                            raise
                        failed += 1
            finally:
                resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            for result in results:
                wrong, _ = compare(result, stock, None, "auto", True)
                if wrong:
                    print(f"wrong: product of {wide}: {wrong}", flush=True)
                    os._exit(WRONG)
        self.compute(0.2)
        print(f"{failed} calls had no memory", flush=True)

    def eat(self):
        """Takes more and more memory while it computes: a cgroup's limit ends it, 137; 0 where it did not."""
        eaten = []
        until = time.monotonic() + self.request["seconds"]
        while time.monotonic() < until:
            eaten.append(torch.ones(4 << 20))
            self.compute(0.02)

    def libraries(self):
        """Opens and closes the plugin and torch's own libraries while threads compute. 0."""
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            mapped = sorted({line.split()[-1] for line in maps if "libipexrun" in line or "libtorch_cpu" in line or "libc10" in line})
        close = ctypes.CDLL(None).dlclose
        close.argtypes = [ctypes.c_void_p]
        until = time.monotonic() + self.request["seconds"]
        thread, problems = soak_life.busy(lambda: self.call(random.Random(1)), lambda: time.monotonic() < until)
        while time.monotonic() < until:
            close(ctypes.CDLL(self.rng.choice(mapped))._handle)
        thread.join()
        if problems:
            sys.exit(str(problems))

    def run(self):
        self.ready()
        getattr(self, self.request["do"])()
        print(f"ok {self.right}", flush=True)


if __name__ == "__main__":
    faulthandler.enable()
    torch.set_num_threads(1)
    Victim(json.loads(sys.argv[1])).run()
