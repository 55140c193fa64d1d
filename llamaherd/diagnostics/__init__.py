"""Problems of an inventory as values, and their output."""
