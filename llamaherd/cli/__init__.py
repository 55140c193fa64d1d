"""The command line of `herd`: one module per command, of the same name."""
