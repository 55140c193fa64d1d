"""The verbs that need several rooms."""
