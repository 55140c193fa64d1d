"""Measure servers: benchmarks, comparisons, tuning and reports."""
