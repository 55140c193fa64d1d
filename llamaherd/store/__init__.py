"""The models that lie on a host: what there is, who uses it, what can go, and whether it is what it should be."""
