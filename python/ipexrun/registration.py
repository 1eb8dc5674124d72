"""Makes a backend known to torch.compile without importing torch._dynamo, which costs most of a second: at once where the program has
imported it, else at the moment when it does."""

import sys

REGISTRY = "torch._dynamo.backends.registry"


def register(name, function):
    module = sys.modules.get(REGISTRY)
    if module is not None:
        register_in(module, name, function)
    else:
        sys.meta_path.insert(0, Waiting(name, function))


def register_in(module, name, function):
    """Fails open: a torch whose registry is another one is imported as if we were not there."""
    try:
        if name not in module._COMPILER_FNS:  # somebody else's of that name stays
            module.register_backend(function, name=name)
    except Exception:
        pass


class Waiting:
    """A finder that finds nothing itself: it lets the others find torch's registry, once, and adds a step to its loading."""

    def __init__(self, name, function):
        self.name, self.function = name, function
        self.busy = False

    def find_spec(self, name, path=None, target=None):
        if name != REGISTRY or self.busy:
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

            def load_and_register(module):
                load(module)
                register_in(module, self.name, self.function)

            spec.loader.exec_module = load_and_register
        except AttributeError:  # a loader of another kind
            return None
        return spec
