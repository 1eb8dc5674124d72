"""What the benches of training share: their options, the launcher's command, the environment of a run."""

import argparse
import os
import sys


def parser(text):
    """Of a bench whose docstring is `text`; its first line is the help's."""
    made = argparse.ArgumentParser(description=text.split("\n")[0])
    made.add_argument("--build", default="build/dev", help="build tree with launcher and plugin")
    made.add_argument("--python", default=sys.executable)
    return made


def launcher(options, *more):
    return [os.path.join(os.path.abspath(options.build), "bin", "ipexrun"), *more]


def environment(**more):
    """Nothing depends on what earlier runs measured."""
    return {**os.environ, "IPEXRUN_CACHE": "off", **more}
