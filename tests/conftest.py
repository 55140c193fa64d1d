"""How hypothesis searches: the same examples for the same code, so that a red run is about the change at hand.

LLAMAHERD_SEARCH=20 searches twenty times as far, by chance, for who looks for what nobody has thought of.
"""

import os

from hypothesis import settings

SEARCH = int(os.environ.get("LLAMAHERD_SEARCH", "0"))
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=100 * max(SEARCH, 1), deadline=None)
settings.load_profile("search" if SEARCH else "steady")
