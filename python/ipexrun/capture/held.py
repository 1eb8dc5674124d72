"""When a form that an earlier process found faster is held against stock again. What held stock back then (a cap on its instructions, another program) may
have gone, and the form takes as long as ever: without a look the loser would answer in every process. A race costs a few of stock's calls, so it is run
once in so many calls that the form answers, which processes count on from one another: programs of a few calls look as well, in some of their runs.

Thread rule: under the interpreter lock."""

AFTER = 512  # calls that it answers between two looks
AT_LEAST = 8  # of this process, in which weights are packed and files are read at first
WARMING = 3  # pairs that do not count: stock has not answered for long, and the op tier packs a weight that it has seen twice
PAIRS, CLEARLY = 2, 0.8  # so many pairs behind these, all below this share of stock's time, are enough
COUNT = "unheld"


class Held:
    def __init__(self, known):
        self.known = known  # remembered.OfModule
        self.before = None  # calls of earlier processes
        self.calls = 0
        self.over = False

    def is_due(self):
        """Of a call that something remembered is about to answer."""
        if self.over:
            return False
        if self.before is None:
            self.before = self.known.number(COUNT)
        self.calls += 1
        return self.calls > AT_LEAST and self.before + self.calls > AFTER

    def begin(self):
        self.over = True
        self.known.remember_number(COUNT, 0)

    def tell_end(self):
        if self.calls and not self.over:
            self.known.remember_number(COUNT, self.before + self.calls)


class Look:
    """One look: the pairs of a race that may be over sooner, because what it would show is known already."""

    def __init__(self):
        self.shares = []  # of stock's time
        self.warming = WARMING

    def warms_up(self):
        """Of a pair: whether it is left out."""
        self.warming -= 1
        return self.warming >= 0

    def is_clear(self, stock_ns, mine_ns):
        self.shares.append(mine_ns / max(stock_ns, 1))
        return len(self.shares) == PAIRS and max(self.shares) <= CLEARLY
