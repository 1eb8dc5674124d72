"""A real cgroup with a CFS quota, v1 or v2: made, entered, watched, removed."""

import os
import time
from pathlib import Path

PERIOD_US = 100_000
V1 = Path("/sys/fs/cgroup/cpu")
V2 = Path("/sys/fs/cgroup")


def cpu_clock_ns(pid):
    """CPU time of all threads of a process, exact to the nanosecond (the clock that clock_getcpuclockid names); 0 when it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0


class Group:
    """Raises OSError where none can be made: no cpu controller, not writable."""

    def __init__(self, name, cpus):
        self.v1 = V1.is_dir()
        self.cpus = cpus
        if not self.v1 and "cpu" not in (V2 / "cgroup.subtree_control").read_text().split():
            (V2 / "cgroup.subtree_control").write_text("+cpu")
        self.folder = (V1 if self.v1 else V2) / f"ipexrun-{os.getpid()}-{name}"
        self.folder.mkdir()
        try:
            if self.v1:
                (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            # Other work of the machine must not be taken for throttling: these groups go first.
            (self.folder / ("cpu.shares" if self.v1 else "cpu.weight")).write_text("262144" if self.v1 else "10000")
            self.limit()
        except OSError:
            self.folder.rmdir()
            raise

    def limit(self):
        """Puts the quota in force."""
        self._write(int(self.cpus * PERIOD_US))

    def lift(self):
        self._write(None)

    def _write(self, quota_us):
        if self.v1:
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota_us or -1))
        else:
            (self.folder / "cpu.max").write_text(f"{quota_us or 'max'} {PERIOD_US}")

    def enter(self):
        """Moves the calling process in; children that it starts later belong to the group as well."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def processes(self):
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]

    def cpu_ns(self):
        """CPU time of the processes that are in it now."""
        return sum(cpu_clock_ns(pid) for pid in self.processes())

    def periods(self):
        """(periods in which it ran, periods in which it was stopped) so far."""
        words = dict(line.split() for line in (self.folder / "cpu.stat").read_text().splitlines())
        return int(words.get("nr_periods", 0)), int(words.get("nr_throttled", 0))

    def remove(self, patience_s=10):
        """A group with processes cannot be removed: those that end are waited for."""
        until = time.monotonic() + patience_s
        while True:
            try:
                self.folder.rmdir()
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
