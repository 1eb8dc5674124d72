"""`python -m ipexrun ...`: replaces this process by the ipexrun binary."""

import os
import shutil
import sys
import sysconfig


def find_binary():
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [
        sysconfig.get_path("scripts"),  # installed by pip
        os.path.dirname(sys.executable),
        os.path.join(here, "..", "..", "..", "..", "bin"),  # lib/ipexrun/python/ipexrun of a build or an installation
    ]
    for folder in folders:
        path = os.path.normpath(os.path.join(folder, "ipexrun"))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("ipexrun")


def main():
    binary = find_binary()
    if binary is None:
        sys.stderr.write("ipexrun: the ipexrun binary was not found beside this package or in PATH (reinstall with pip, or build it)\n")
        return 127
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
