"""WSL's part of the program on hosts."""
