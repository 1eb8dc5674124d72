"""What races of graphs, of their parts and of modules have in common.

Thread rule: no state; any thread."""

CHECKS = 3  # calls whose results are judged; the last of them no earlier than the race's end
REMATCHES = 2  # after races that something else on the machine disturbed, and that may have been won without
UNSETTLED = 32  # calls that are left out of a race because something inside was still being chosen


def may_have_won(trial):
    """A race that was lost by little while something else ran on the machine."""
    return trial.disturbed() and trial.ratio() < 1.05
