"""What moving names stand for now: hubs, registries and git are asked."""
