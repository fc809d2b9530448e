"""Code generation: LLVM IR and shared libraries from lowered tensor functions and planned graph functions."""
