"""Benchmark a server: its workloads, and the steps from connection to outcome."""
