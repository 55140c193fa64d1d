"""How fast servers are: results with an error and a provenance, what two of them tell, and what measures them."""
