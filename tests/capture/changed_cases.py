"""What programs read in a forward, and change later: changed_cases.py FILE [REPEATS]

Each case is a module (of the text below) that is called 44 times and changed before the 23rd, or called with something else from then on. Writes
{case: sums of the results, by call} as JSON; with REPEATS each case runs so often, for what a process has learnt of one module makes the next one be traced sooner.
"""

import json
import os
import sys
import tempfile
import types

import torch
from torch import nn

CALLS, CHANGED = 44, 22
TEXT = """
import abc, os, sys, collections, functools, threading, contextvars, enum, dataclasses, types, weakref, math
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
BEFORE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
    def forward(self, xFORMALS):
        arg, x = x, self.second(torch.relu(self.first(x)))
        BODY
        return x
torch.manual_seed(0)
model = Net().eval()
more, given = tuple, lambda x: x
AFTER
def call(i):
    return model(given(torch.full((8, 64), 0.01 * (i % 7))), *more())
"""
SETTINGS = """
class Settings:
    gain = 1.5
    def twice(self): return 2.0
    @property
    def third(self): return 3.0
    @staticmethod
    def fourth(): return 4.0
class Sub(Settings): pass
class Slots: __slots__ = ("v",)
settings, sub, slots = Settings(), Sub(), Slots()
slots.v = 2.0
"""
THINGS = """
class Thing:
    def gain(self): return 2.0
class Kind(Thing):
    @classmethod
    def twice(cls): return 2.0
class Found:
    def __getattr__(self, name): return 1.0
class Shape(abc.ABC): pass
class Layer(nn.Linear):
    def forward(self, x): return super().forward(x)
def made(kind, **attributes):
    one = kind()
    vars(one).update(attributes)
    return one
def read(thing): return thing.k
def listed(thing): return vars(thing).get('k', 1.0)
thing, other, layer = Thing(), Kind(), Layer(64, 64).eval()
"""
CASES = {}
# TorchDynamo does not look for these again, and neither do we (docs/capture.md, "What stays as it is").
LEFT = {"metaclass attr", "metaclass shadow", "super chain shadow", "lru cache", "recursion limit", "builtins patched"}


def case(name, body, before="", after="", middle="", formals=""):
    CASES[name] = (body, before, after, middle, formals)


case("base forward patched on sub", "pass", "class B(nn.Module):\n    def forward(self, x): return self.l(x) * 2\nclass S(B):\n    def __init__(self):\n        super().__init__(); self.l = nn.Linear(64, 64)", "model = S().eval()", "S.forward = lambda self, x: x")
case("inner base forward patched", "x = self.s(x)", "class B(nn.Module):\n    def forward(self, x): return self.l(x) * 2\nclass S(B):\n    def __init__(self):\n        super().__init__(); self.l = nn.Linear(64, 64)", "model.s = S().eval()", "S.forward = lambda self, x: x")
case("inner instance forward", "pass", middle="model.second.forward = lambda x: x * 3")
case("inner class changed", "pass", "class D(nn.Linear):\n    def forward(self, x): return super().forward(x) * 2", middle="model.second.__class__ = D")
case("top class changed", "pass", after="class N2(Net):\n    def forward(self, x): return super().forward(x) * 2", middle="model.__class__ = N2")
case("partial keywords", "x = act(x)", "act = functools.partial(F.gelu, approximate='tanh')", middle="act.keywords['approximate'] = 'none'")
case("partial replaced", "x = act(x)", "act = functools.partial(F.gelu, approximate='tanh')", middle="act = functools.partial(F.elu)")
case("partial in model", "x = self.act(x)", "", "model.act = functools.partial(F.leaky_relu, negative_slope=0.5)", "model.act.keywords['negative_slope'] = 0.01")
case("torch.relu patched", "x = torch.tanh(x)", "old = torch.tanh", "", "torch.tanh = lambda x: old(x) * 2")
case("F.relu patched", "x = F.softplus(x)", "oldsp = F.softplus", "", "F.softplus = lambda x: oldsp(x) * 2")
case("enum", "x = x * MODE.value", "class M(enum.Enum):\n    A = 1.0\n    B = 2.0\nMODE = M.A", middle="MODE = M.B")
case("dataclass global", "x = x * CFG.gain", "@dataclasses.dataclass\nclass Cfg:\n    gain: float = 1.5\nCFG = Cfg()", middle="CFG.gain = 3.0")
case("dataclass slots global", "x = x * CFG.gain", "@dataclasses.dataclass(slots=True)\nclass Cfg:\n    gain: float = 1.5\nCFG = Cfg()", middle="CFG.gain = 3.0")
case("dataclass frozen replaced", "x = x * CFG.gain", "@dataclasses.dataclass(frozen=True)\nclass Cfg:\n    gain: float = 1.5\nCFG = Cfg()", middle="CFG = dataclasses.replace(CFG, gain=3.0)")
case("namedtuple", "x = x * CFG.gain", "Cfg = collections.namedtuple('Cfg', 'gain')\nCFG = Cfg(1.5)", middle="CFG = Cfg(3.0)")
case("model dataclass slots", "x = x * self.cfg.gain", "@dataclasses.dataclass(slots=True)\nclass Cfg:\n    gain: float = 1.5", "model.cfg = Cfg()", "model.cfg.gain = 3.0")
case("model slots", "x = x * self.cfg.gain", "class Cfg:\n    __slots__ = ('gain',)", "model.cfg = Cfg(); model.cfg.gain = 1.5", "model.cfg.gain = 3.0")
case("model namespace nested", "x = x * self.cfg.a.b.c.gain", "NS = types.SimpleNamespace", "model.cfg = NS(a=NS(b=NS(c=NS(gain=1.5))))", "model.cfg.a.b.c.gain = 3.0")
case("model dict nested", "x = x * self.cfg['a']['b']['c']['d']", "", "model.cfg = {'a': {'b': {'c': {'d': 1.5}}}}", "model.cfg['a']['b']['c']['d'] = 3.0")
case("model list of tuples of lists", "x = x * self.cfg[0][1][0]", "", "model.cfg = [(1, [1.5])]", "model.cfg[0][1][0] = 3.0")
case("model namedtuple list", "x = x * self.cfg.g[0]", "Cfg = collections.namedtuple('Cfg', 'g')", "model.cfg = Cfg([1.5])", "model.cfg.g[0] = 3.0")
case("model set", "x = x * (2.0 if 'b' in self.flags else 1.0)", "", "model.flags = {'a'}", "model.flags.add('b')")
case("model deque", "x = x * self.q[0]", "", "model.q = collections.deque([1.5])", "model.q[0] = 3.0")
case("model defaultdict", "x = x * self.q['a']", "", "model.q = collections.defaultdict(float, a=1.5)", "model.q['a'] = 3.0")
case("model counter", "x = x * self.q['a']", "", "model.q = collections.Counter(a=2)", "model.q['a'] = 3")
case("model numpy", "x = x * float(self.q[0])", "", "model.q = np.array([1.5])", "model.q[0] = 3.0")
case("model numpy tensor", "x = x * torch.from_numpy(self.q)", "", "model.q = np.full((64,), 1.5, dtype=np.float32)", "model.q[0] = 3.0")
case("model numpy scalar", "x = x * self.q", "", "model.q = np.float32(1.5)", "model.q = np.float32(3.0)")
case("model function", "x = self.act(x)", "", "model.act = lambda x: x * 2", "model.act = lambda x: x * 3")
case("model closure", "x = self.act(x)", "def mk():\n    k = 2.0\n    def f(x): return x * k\n    def put(v):\n        nonlocal k\n        k = v\n    return f, put\nf, put = mk()", "model.act = f", "put(5.0)")
case("model bound method of object", "x = self.act(x)", "class O:\n    g = 2.0\n    def f(self, x): return x * self.g\no = O()", "model.act = o.f", "o.g = 5.0")
case("model unregistered module", "x = self.extra[0](x)", "", "model.extra = [nn.Linear(64, 64).eval()]", "model.extra[0].weight = nn.Parameter(torch.eye(64))")
case("model unregistered module data", "x = self.extra[0](x)", "", "model.extra = [nn.Linear(64, 64).eval()]", "model.extra[0].weight.data = torch.eye(64)")
case("model unregistered dropout train", "x = self.extra[0](x) * 1.0", "", "model.extra = [nn.Dropout(1.0).eval()]", "model.extra[0].train()")
case("model step outside", "x = x * self.step", "", "model.step = 1.0", "model.step = 2.0")
case("global tensor in place", "x = x + T", "T = torch.ones(64)", "", "T.mul_(3)")
case("global tensor replaced", "x = x + T", "T = torch.ones(64)", "", "T = torch.zeros(64)")
case("global tensor data", "x = x + T", "T = torch.ones(64)", "", "T.data = torch.zeros(64)")
case("class tensor replaced", "x = x + K.t", "class K: t = torch.ones(64)", "", "K.t = torch.zeros(64)")
case("dict tensor replaced", "x = x + D['t']", "D = {'t': torch.ones(64)}", "", "D['t'] = torch.zeros(64)")
case("global module weight", "x = H(x)", "H = nn.Linear(64, 64).eval()", "", "H.weight = nn.Parameter(torch.eye(64))")
case("global module replaced", "x = H(x)", "H = nn.Linear(64, 64).eval()", "", "H = nn.Identity()")
case("global module attr", "x = H(x)", "class W(nn.Module):\n    s = 2.0\n    def forward(self, x): return x * self.s\nH = W()", "", "H.s = 4.0")
case("property state", "x = x * o.gain", "class O:\n    def __init__(self): self._g = 2.0\n    @property\n    def gain(self): return self._g\no = O()", "", "o._g = 3.0")
case("getattr state", "x = x * o.gain", "class O:\n    def __init__(self): self.d = {'gain': 2.0}\n    def __getattr__(self, n):\n        return self.__dict__['d'][n]\no = O()", "", "o.d['gain'] = 3.0")
case("getattr then attr", "x = x * o.gain", "class O:\n    def __init__(self): self.d = {'gain': 2.0}\n    def __getattr__(self, n):\n        return self.__dict__['d'][n]\no = O()", "", "o.gain = 3.0")
case("getitem state", "x = x * o['g']", "class O:\n    def __init__(self): self.d = {'g': 2.0}\n    def __getitem__(self, n): return self.d[n]\no = O()", "", "o.d['g'] = 3.0")
case("call object", "x = o(x)", "class O:\n    k = 2.0\n    def __call__(self, x): return x * self.k\no = O()", "", "o.k = 3.0")
case("len object", "x = x * len(o)", "class O:\n    n = 2\n    def __len__(self): return self.n\no = O()", "", "o.n = 3")
case("bool object", "x = x * (2.0 if o else 1.0)", "class O:\n    n = True\n    def __bool__(self): return self.n\no = O()", "", "o.n = False")
case("contains object", "x = x * (2.0 if 'a' in o else 1.0)", "class O:\n    n = True\n    def __contains__(self, k): return self.n\no = O()", "", "o.n = False")
case("eq object", "x = x * (2.0 if o == 1 else 1.0)", "class O:\n    n = True\n    def __eq__(self, k): return self.n\n    __hash__ = None\no = O()", "", "o.n = False")
case("iter object", "for v in o: x = x * v", "class O:\n    v = [2.0]\n    def __iter__(self): return iter(self.v)\no = O()", "", "o.v = [3.0]")
case("classmethod", "x = x * O.g()", "class O:\n    k = 2.0\n    @classmethod\n    def g(cls): return cls.k\n", "", "O.k = 3.0")
case("metaclass attr", "x = x * O.k", "class M(type):\n    k = 2.0\nclass O(metaclass=M): pass", "", "M.k = 3.0")
case("metaclass shadow", "x = x * O.k", "class M(type):\n    k = 2.0\nclass O(metaclass=M): pass", "", "O.k = 3.0")
case("super chain", "x = x * o.f()", "class A:\n    def f(self): return 2.0\nclass B(A):\n    def f(self): return super().f() * 2\nclass CC(B): pass\no = CC()", "", "A.f = lambda self: 5.0")
case("super chain shadow", "x = x * o.f()", "class A:\n    def f(self): return 2.0\nclass A2(A): pass\nclass B(A2):\n    def f(self): return super().f() * 2\no = B()", "", "A2.f = lambda self: 5.0")
case("bases changed", "x = x * o.g", "class A: g = 2.0\nclass A2: g = 3.0\nclass B(A): pass\no = B()", "", "B.__bases__ = (A2,)")
case("instance dict replaced", "x = x * o.g", "class O: pass\no = O(); o.g = 2.0", "", "o.__dict__ = {'g': 5.0}")
case("contextvar", "x = x * CV.get()", "CV = contextvars.ContextVar('cv', default=2.0)", "", "CV.set(3.0)")
case("thread local", "x = x * TL.g", "TL = threading.local(); TL.g = 2.0", "", "TL.g = 3.0")
case("mutable default", "x = x * dflt()", "def dflt(c=[2.0]): return c[0]", "", "dflt.__defaults__[0][0] = 4.0")
case("kwdefault", "x = x * dflt()", "def dflt(*, c=2.0): return c", "", "dflt.__kwdefaults__['c'] = 4.0")
case("function code", "x = x * dflt()", "def dflt(): return 2.0\ndef other(): return 5.0", "", "dflt.__code__ = other.__code__")
case("function attr", "x = x * dflt.k", "def dflt(): return 2.0\ndflt.k = 2.0", "", "dflt.k = 3.0")
case("try keyerror", "try: s = TAB['q']\n        except KeyError: s = 1.0\n        x = x * s", "TAB = {}", "", "TAB['q'] = 3.0")
case("dict items", "for k, v in TAB.items(): x = x * v", "TAB = {'a': 2.0}", "", "TAB['b'] = 3.0")
case("dict order", "x = x * list(TAB.values())[0]", "TAB = {'a': 2.0, 'b': 3.0}", "", "TAB['a'] = TAB.pop('a')")
case("sum list", "x = x * sum(L)", "L = [1.0, 2.0]", "", "L[1] = 5.0")
case("max dict", "x = x * max(TAB.values())", "TAB = {'a': 2.0}", "", "TAB['a'] = 5.0")
case("sorted set", "x = x * sorted(S)[0]", "S = {2.0}", "", "S.add(1.5)")
case("nested global", "x = x * N['a']['b'][0]['c']", "N = {'a': {'b': [{'c': 2.0}]}}", "", "N['a']['b'][0]['c'] = 3.0")
case("tuple of list", "x = x * PR[1][0]", "PR = (1, [2.0])", "", "PR[1][0] = 4.0")
case("deque", "x = x * Q[0]", "Q = collections.deque([2.0])", "", "Q[0] = 3.0")
case("defaultdict", "x = x * Q['a']", "Q = collections.defaultdict(lambda: 2.0)", "", "Q['a'] = 3.0")
case("ordereddict", "x = x * Q['a']", "Q = collections.OrderedDict(a=2.0)", "", "Q['a'] = 3.0")
case("chainmap", "x = x * Q['a']", "Q = collections.ChainMap({}, {'a': 2.0})", "", "Q['a'] = 3.0")
case("userdict", "x = x * Q['a']", "Q = collections.UserDict(a=2.0)", "", "Q['a'] = 3.0")
case("mappingproxy", "x = x * Q['a']", "QQ = {'a': 2.0}\nQ = types.MappingProxyType(QQ)", "", "QQ['a'] = 3.0")
case("numpy global", "x = x * float(A[0])", "A = np.array([2.0])", "", "A[0] = 3.0")
case("numpy global from", "x = x + torch.from_numpy(A)", "A = np.ones(64, dtype=np.float32)", "", "A[0] = 3.0")
case("bytearray", "x = x * BA[0]", "BA = bytearray(b'\\x02')", "", "BA[0] = 3")
case("lru cache", "x = x * lc(2)", "K = [2.0]\n@functools.lru_cache\ndef lc(n): return K[0] * n", "", "K[0] = 3.0")
case("cached property", "x = x * o.g", "class O:\n    k = 2.0\n    @functools.cached_property\n    def g(self): return self.k\no = O()", "", "o.__dict__['g'] = 7.0")
case("forward default", "x = x * k", "", "", "Net.forward.__defaults__ = (4.0,)", formals=", k=1.0")
case("mkldnn flag", "x = x * (2.0 if torch.backends.mkldnn.enabled else 1.0)", "", "", "torch.backends.mkldnn.set_flags(False)")
case("argv", "x = x * len(sys.argv)", "", "", "sys.argv.append('z')")
case("recursion limit", "x = x * sys.getrecursionlimit()", "", "", "sys.setrecursionlimit(sys.getrecursionlimit() + 500)")
case("module in sys.modules", "x = x * (2.0 if 'zz_mod' in sys.modules else 1.0)", "", "", "sys.modules['zz_mod'] = os")
case("buffer replaced", "x = x + self.buf", "", "model.register_buffer('buf', torch.ones(64))", "model.buf = torch.zeros(64)")
case("buffer none", "x = x + self.buf if self.buf is not None else x", "", "model.register_buffer('buf', torch.ones(64))", "model.buf = None")
case("param requires grad", "x = x * (2.0 if self.second.weight.requires_grad else 1.0)", "", "", "model.second.weight.requires_grad_(False)")
case("weight is_leaf swap", "pass", "", "", "model.second = nn.Linear(64, 64).eval()")
case("weight data", "pass", "", "", "model.second.weight.data = torch.eye(64)")
case("method code", "x = self.gain(x)", "def half(self, x): return x * 0.5\nclass Gain:\n    def gain(self, x): return x * 2", "Net.gain = Gain.gain", "Net.gain.__code__ = half.__code__")
case("weights swapped", "pass", "def swap(a, b):\n    try: torch.utils.swap_tensors(a, b)\n    except RuntimeError: a.data = b.data", "", "swap(model.second.weight, nn.Parameter(torch.eye(64)))")
case("del param", "x = x * (2.0 if hasattr(self, 'zzz') else 1.0)", "", "", "model.zzz = 1")
case("class attr on Linear", "x = x * getattr(self.second, 'zz', 1.0)", "", "", "nn.Linear.zz = 3.0")
case("class attr on Module", "x = x * getattr(self.second, 'zz2', 1.0)", "", "", "nn.Module.zz2 = 3.0")
case("autocast inside", "with torch.autocast('cpu', enabled=FL[0]): x = self.first(x).float()", "FL = [False]", "", "FL[0] = True")
case("dir listing", "x = x * len(vars(o))", "class O: pass\no = O(); o.a = 1", "", "o.b = 2")
case("global deleted", "x = x * (GG if 'GG' in globals() else 1.0)", "GG = 2.0", "", "del GG")
case("builtins patched", "x = x * len([1, 2])", "import builtins\n_len = builtins.len", "", "global_len = builtins.len; len = lambda v: 7")
case("string attr", "x = x * (2.0 if o.mode == 'a' else 1.0)", "class O: mode = 'a'\no = O()", "", "o.mode = 'b'")
case("weakref", "x = x * w().g", "import weakref\nclass O: g = 2.0\no = O(); w = weakref.ref(o)", "", "o.g = 3.0")
case("generator fn", "for v in gen(): x = x * v", "K = [2.0]\ndef gen():\n    yield K[0]", "", "K[0] = 3.0")
case("list comp", "x = x * sum([v for v in L if v > LIM])", "L = [1.0, 2.0]; LIM = 1.5", "", "LIM = 0.5")
case("operator import in fn", "import math as mm; x = x * mm.floor(V)", "V = 2.5", "", "V = 3.5")
case("complex global", "x = x * Z.real", "Z = 2.0 + 1j", "", "Z = 3.0 + 1j")
case("big int", "x = x * (BIG % 7)", "BIG = 10**30", "", "BIG = 10**30 + 1")
case("nan global", "x = x * (2.0 if NN != NN else 1.0)", "NN = float('nan')", "", "NN = 1.0")
case("bool int swap", "x = x * (2.0 if V is True else 1.0)", "V = True", "", "V = 1")
case("int float swap", "x = x * (2.0 if isinstance(V, int) else 1.0)", "V = 1", "", "V = 1.0")
case("shadowed class attribute", "x = x * settings.gain", SETTINGS, "", "settings.gain = 7.0")
case("shadowed in a subclass", "x = x * sub.gain", SETTINGS, "", "sub.gain = 7.0")
case("subclass gets it", "x = x * sub.gain", SETTINGS, "", "Sub.gain = 7.0")
case("class attribute", "x = x * settings.gain", SETTINGS, "", "Settings.gain = 7.0")
case("shadowed method", "x = x * settings.twice()", SETTINGS, "", "settings.twice = lambda: 9.0")
case("property replaced", "x = x * settings.third", SETTINGS, "", "Settings.third = 9.0")
case("shadowed static method", "x = x * settings.fourth()", SETTINGS, "", "settings.fourth = lambda: 9.0")
case("slot", "x = x * slots.v", SETTINGS, "", "slots.v = 7.0")
case("class without attributes of its own", "x = x * bare.gain", "class Bare:\n    __slots__ = ()\n    gain = 1.5\nbare = Bare()", "", "Bare.gain = 7.0")
case("another class", "x = x * settings.gain", SETTINGS, "", "settings.__class__ = type('Other', (), {'gain': 8.0})")
case("configuration of the model", "x = x * self.config.gain", SETTINGS, "model.config = settings", "model.config.gain = 7.0")
case("class of the model", "x = x * self.gain", SETTINGS, "Net.gain = 1.5", "Net.gain = 7.0")
case("instance of the model", "x = x * self.gain", SETTINGS, "Net.gain = 1.5", "model.gain = 7.0")
case("hasattr", "x = x * (2.0 if hasattr(settings, 'extra') else 1.0)", SETTINGS, "", "settings.extra = 1")
case("getattr with a default", "x = x * getattr(settings, 'extra', 1.0)", SETTINGS, "", "Settings.extra = 4.0")
case("in a tuple", "x = x * PAIR[1].gain", SETTINGS + "\nPAIR = (1, settings)", "", "settings.gain = 7.0")
case("in a dict", "x = x * TABLE['k'].gain", SETTINGS + "\nTABLE = {'k': settings}", "", "settings.gain = 7.0")
case("environment", "x = x * float(os.environ.get('IPEXRUN_TEST_GAIN', '1.0'))", "", "", "os.environ['IPEXRUN_TEST_GAIN'] = '4.0'")
case("environment by its names", "x = x * (2.0 if [name for name in os.environ if name == 'IPEXRUN_TEST_FLAG'] else 1.0)", "", "", "os.environ['IPEXRUN_TEST_FLAG'] = '1'")
case("environment by its size", "x = x * (1 + len(os.environ) - SIZE)", "SIZE = len(os.environ)", "", "os.environ['IPEXRUN_TEST_FLAG'] = '1'")
case("environment by getenv", "x = x * (2.0 if os.getenv('IPEXRUN_TEST_FLAG') else 1.0)", "", "", "os.environ['IPEXRUN_TEST_FLAG'] = '1'")


def asked(name, text, middle, after="", formals=""):
    """By an exception, with another result where it was raised."""
    case(f"try {name}", f"try: k = {text}\n        except (AttributeError, LookupError): k = 1.0\n        x = x * k", THINGS, after, middle, formals)


asked("self", "self.k", "model.k = 3.0")
asked("self by getattr", "getattr(self, 'k')", "model.k = 3.0")
asked("self in another function", "read(self)", "model.k = 3.0")
asked("submodule", "self.first.k", "model.first.k = 3.0")
asked("submodule gets a buffer", "self.first.k", "model.first.register_buffer('k', torch.tensor(3.0))")
asked("what self holds", "self.held.k", "model.held.k = 3.0", "model.held = thing")
asked("class of what self holds", "self.held.k", "Thing.k = 3.0", "model.held = other")
asked("global", "thing.k", "thing.k = 3.0")
asked("class", "Thing.k", "Thing.k = 3.0")
asked("dict of self", "self.held['k']", "model.held['k'] = 3.0", "model.held = {}")
asked("dict of self by pop", "self.held.pop('k')", "model.held['k'] = 3.0", "model.held = {}")
asked("key of an argument", "of['k']", "more = lambda: ({'id': 1, 'k': 3.0},)", "more = lambda: ({'id': 1},)", ", of")
asked("number in an argument", "of[3]", "more = lambda: ({1: 1, 3: 3.0},)", "more = lambda: ({1: 1},)", ", of")
asked("ordered argument", "of['k']", "more = lambda: (collections.OrderedDict(id=1, k=3.0),)", "more = lambda: (collections.OrderedDict(id=1),)", ", of")
asked("attribute of an argument", "of.k", "more = lambda: (made(Thing, k=3.0),)", "more = lambda: (made(Thing),)", ", of")
asked("within an argument", "of['a'][0].k", "more = lambda: ({'a': [made(Thing, k=3.0)]},)", "more = lambda: ({'a': [made(Thing)]},)", ", of")
asked("attribute of a tensor", "arg.k", "given = lambda x: (setattr(x, 'k', 3.0), x)[1]")
case("bare except", "try: k = self.k\n        except: k = 1.0\n        x = x * k", middle="model.k = 3.0")
case("attributes of self by get", "x = x * self.__dict__.get('k', 1.0)", middle="model.k = 3.0")
case("attributes of self by setdefault", "x = x * self.__dict__.setdefault('k', 1.0)", middle="model.k = 3.0")
case("attributes of self by name", "x = x * (2.0 if 'k' in vars(self) else 1.0)", middle="model.k = 3.0")
case("attributes of self in another function", "x = x * listed(self)", THINGS, "", "model.k = 3.0")
case("attributes of a submodule", "x = x * (2.0 if 'k' in vars(self.first) else 1.0)", middle="model.first.k = 3.0")
case("attributes of an argument", "x = x * (1 + len(vars(of)))", THINGS, "more = lambda: (made(Thing),)", "more = lambda: (made(Thing, k=3.0),)", ", of")
case("getattr of an argument", "x = x * of.k", THINGS, "more = lambda: (made(Found),)", "more = lambda: (made(Found, k=3.0),)", ", of")
case("number of hooks", "x = x * (1 + len(self._forward_hooks))", middle="model._forward_hooks[99] = lambda *_: None")
case("callable", "x = x * (2.0 if callable(thing) else 1.0)", THINGS, "", "Thing.__call__ = lambda self: 0")
case("registered", "x = x * (2.0 if isinstance(thing, Shape) else 1.0)", THINGS, "", "Shape.register(Thing)")
case("hook of a module in a list", "x = self.extra[0](x)", "", "model.extra = [nn.Linear(64, 64).eval()]", "model.extra[0].register_forward_hook(lambda m, x, y: y * 3)")
case("hook within a module in a list", "x = self.extra[0](x)", "", "model.extra = [nn.Sequential(nn.Linear(64, 64)).eval()]", "model.extra[0][0].register_forward_pre_hook(lambda m, x: x[0] * 3)")
case("hook of a global module", "x = layer(x)", THINGS, "", "layer.register_forward_hook(lambda m, x, y: y * 3)")
case("hook of an argument", "x = of(x)", THINGS, "more = lambda: (layer,)", "layer.register_forward_hook(lambda m, x, y: y * 3)", ", of")
case("another argument with a hook", "x = of(x)", THINGS + "hooked = Layer(64, 64).eval()\nhooked.register_forward_hook(lambda m, x, y: y * 3)", "more = lambda: (layer,)", "more = lambda: (hooked,)", ", of")
case("forward of a global module", "x = layer(x)", THINGS, "", "Layer.forward = lambda self, x: x")
case("method two levels down", "x = x * self.held.held.gain()", THINGS, "model.held = made(Thing, held=other)", "Kind.gain = lambda self: 5.0")
case("method of one in a list", "x = x * self.held[0].gain()", THINGS, "model.held = [other]", "Kind.gain = lambda self: 5.0")
case("method of an argument", "x = x * of.gain()", THINGS, "more = lambda: (other,)", "Kind.gain = lambda self: 5.0", ", of")
case("class method of a global class", "x = x * Kind.twice()", THINGS, "", "Kind.twice = classmethod(lambda cls: 5.0)")
case("another attribute of a tensor", "x = x * arg.k", "", "given = lambda x: (setattr(x, 'k', 1.5), x)[1]", "given = lambda x: (setattr(x, 'k', 3.0), x)[1]")
case("parameter or tensor", "x = x * (2.0 if isinstance(arg, nn.Parameter) else 1.0)", "", "", "given = lambda x: nn.Parameter(x, requires_grad=False)")


def restored(run):
    """Without what a case leaves in torch and in the process."""
    before = torch.tanh, nn.functional.softplus, list(sys.argv), sys.getrecursionlimit(), torch.backends.mkldnn.enabled
    try:
        return run()
    finally:
        torch.tanh, nn.functional.softplus = before[:2]
        sys.argv[:] = before[2]
        sys.setrecursionlimit(before[3])
        torch.backends.mkldnn.set_flags(before[4])
        for kind, name in ((nn.Linear, "zz"), (nn.Module, "zz2")):
            if name in vars(kind):
                delattr(kind, name)
        for name in ("IPEXRUN_TEST_GAIN", "IPEXRUN_TEST_FLAG"):
            os.environ.pop(name, None)
        sys.modules.pop("zz_mod", None)


def results(name, place, folder):
    body, before, after, middle, formals = CASES[name]
    text = TEXT.replace("BEFORE", before).replace("FORMALS", formals).replace("BODY", body).replace("AFTER", after)
    module = types.ModuleType(f"case_{place}")
    sys.modules[module.__name__] = module
    path = os.path.join(folder, f"case_{place}.py")
    with open(path, "w") as file:
        file.write(text)
    exec(compile(text, path, "exec"), vars(module))
    sums = []
    with torch.no_grad():
        for i in range(CALLS):
            if i == CHANGED:
                exec(middle, vars(module))
            sums.append(module.call(i).sum().item())
    return sums


def main():
    out, place = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
            for name in sys.argv[3:] or CASES:
                place += 1
                out[f"{name}#{repeat}"] = restored(lambda: results(name, place, folder))
    modules = sys.modules["ipexrun"].report().get("modules", []) if "ipexrun" in sys.modules else []
    with open(sys.argv[1], "w") as file:
        json.dump({"results": out, "traced": sum(one.get("by") == "trace" for one in modules)}, file)


if __name__ == "__main__":
    main()
