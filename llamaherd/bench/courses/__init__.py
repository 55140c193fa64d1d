"""What a server is asked, in which order: the usual measurement, depths, several at once, a soak, energy."""
