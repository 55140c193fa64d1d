"""The program that runs on hosts: standard library alone, Python 3.10 or newer. `docs/design/hosts.md` describes it."""
