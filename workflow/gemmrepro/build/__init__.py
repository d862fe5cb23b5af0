"""Builds kernels: from a source to a fat binary, its disassembly and a record of what the compiler made of it."""
