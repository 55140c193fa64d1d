"""The search for keys with which an instance does its owner's work fastest, within memory and quality."""
