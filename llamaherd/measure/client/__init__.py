"""Send requests to a server and time its responses."""
