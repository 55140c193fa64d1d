"""Trials: measure two servers side by side in blocks, gate a change, and compare restarts."""
