"""Meter a host while its server is measured: energy, power, heat, clocks and memory."""
