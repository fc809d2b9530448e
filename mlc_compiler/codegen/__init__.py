"""Code generation: lowered tensor functions and planned graph functions to LLVM code, and that to a shared library."""
