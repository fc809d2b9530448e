"""The version of the toolchain, in the one place that packaging, the command line and every compiled library read."""

__version__ = "0.1.0"
