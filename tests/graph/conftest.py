"""Every test here compiles for the plugin of the build under test, in this process, as plain Python would load it."""

import os
import sys

BUILD = os.environ["IPEXRUN_BUILD_DIR"]
sys.path.insert(0, f"{BUILD}/lib/ipexrun/python")
os.environ.setdefault("IPEXRUN_CACHE", "off")
