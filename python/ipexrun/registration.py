"""Makes a backend known to torch.compile without importing torch._dynamo, which costs most of a second: at once where the program has
imported it, else at the moment when it does. The same for anything else that is to happen after an import."""

import sys

REGISTRY = "torch._dynamo.backends.registry"


def register(name, function):
    when_imported(REGISTRY, lambda module: register_in(module, name, function))


def when_imported(name, action):
    """action(module) at once where the program has imported the module, else at the end of its import."""
    module = sys.modules.get(name)
    if module is not None:
        attempt(action, module)
    else:
        sys.meta_path.insert(0, Waiting(name, action))


def attempt(action, module):
    """Fails open: a module that is another one than we know is imported as if we were not there."""
    try:
        action(module)
    except Exception:
        pass


def register_in(module, name, function):
    if name not in module._COMPILER_FNS:  # somebody else's of that name stays
        module.register_backend(function, name=name)


class Waiting:
    """A finder that finds nothing itself: it lets the others find the module, once, and adds a step to its loading."""

    def __init__(self, name, action):
        self.name, self.action = name, action
        self.busy = False

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self.busy:
            return None
        self.busy = True
        try:
            import importlib.util

            spec = importlib.util.find_spec(name)
        finally:
            self.busy = False
        if spec is None or spec.loader is None:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            load = spec.loader.exec_module

            def load_and_act(module):
                load(module)
                attempt(self.action, module)

            spec.loader.exec_module = load_and_act
        except AttributeError:  # a loader of another kind
            return None
        return spec
