"""The command line: one module per command; it parses, calls `mlc_toolchain` or `mlc_runtime`, prints."""
