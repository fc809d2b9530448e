"""Code generation: lowered tensor functions and planned graph functions to LLVM IR, and to a shared library."""
