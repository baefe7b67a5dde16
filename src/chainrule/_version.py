"""The version, in the one place that the build, the command line and the run folders read."""

__version__ = "0.1.0"
