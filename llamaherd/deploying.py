"""pyinfra, as `herd up` starts it: it ends with `herd`, and from its first moment on without a traceback."""

import os
import signal
import sys
from typing import NoReturn

from llamaherd.endings import ENDINGS, HERD, end_with_parent


def main() -> None:
    """Run pyinfra with the arguments of this program."""
    for ending in ENDINGS:
        if signal.getsignal(ending) is not signal.SIG_IGN:
            signal.signal(ending, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)  # what came meanwhile counts now
    end_with_parent(os.environ.get(HERD))
    from pyinfra_cli.main import main as pyinfra

    sys.argv[0] = "pyinfra"
    pyinfra()


def hold_endings() -> None:
    """Keep signals until the program that starts here can take them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)


def _leave(number: int, _frame: object) -> NoReturn:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
