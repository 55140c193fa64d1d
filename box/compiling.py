"""How engines are compiled where they only need to be real, and not fast: in tests, and in benchmarks of changes."""

OPTIONS = {"CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG"}
"""CMake options. -O3 takes half as much again of the compilers' time; the kernels that are C keep it.

All hosts of tests take the same, or the cache of compilers would not know it.
"""
