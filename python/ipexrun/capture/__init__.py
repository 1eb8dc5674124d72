"""Capture of the program's modules: which calls are watched, traced and answered by what was captured (capture.py is where the extension asks)."""
