"""What all tests stand on: how hypothesis searches, and which signals what they start hears.

Hypothesis takes the same examples for the same code, so that a red run is about the change at hand.
LLAMAHERD_SEARCH=20 searches twenty times as far, by chance, for who looks for what nobody has thought of.
"""

import os
import signal

from hypothesis import HealthCheck, settings

SEARCH = int(os.environ.get("LLAMAHERD_SEARCH", "0"))
# How long an example takes depends on how busy the machine is.
TIMELESS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", TIMELESS, derandomize=True)
settings.register_profile("search", TIMELESS, max_examples=100 * max(SEARCH, 1))
settings.load_profile("search" if SEARCH else "steady")

# A shell ignores Ctrl-C in what it starts beside itself, and nohup a hang-up; a program inherits that, and tests send
# both to what they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
