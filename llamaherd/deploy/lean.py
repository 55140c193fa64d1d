"""pyinfra's API, without what `herd up` has no use for.

Loading pyinfra takes longer than loading all of ours, most of it for an SSH connector that nothing here uses; and it
works out again for each operation of each host what stays the same. What it does with operations is left as it is.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from types import FrameType, ModuleType
from typing import Any

from llamaherd.host.signals import END_SIGNALS


def load_pyinfra() -> None:
    """Load it, before anything that opens sockets or starts processes: gevent takes the place of what those use."""
    from gevent import events, monkey
    from gevent.hub import Hub

    # For each module that it replaces, gevent reads what all installed packages say of themselves, for plugins.
    events.notify_and_call_entry_points = events.notify
    # It looks through all objects there are for locks that are held just now. Nothing is being imported, so none is.
    gc.freeze()
    monkey.patch_all()
    gc.unfreeze()
    # While all wait for hosts, Ctrl-C arrives in gevent's loop. It hands it on, and would print it with a date before.
    Hub.NOT_ERROR = (*Hub.NOT_ERROR, KeyboardInterrupt)
    for each in END_SIGNALS:
        handler = signal.getsignal(each)
        if callable(handler):
            signal.signal(each, partial(_in_main, handler))
    stand = _Stand("paramiko")
    if sys.modules.setdefault("paramiko", stand) is stand:
        import_module("pyinfra.api.operations")
        del sys.modules["paramiko"]  # whoever wants it from now on gets the real one
    # By import_module: `pyinfra.api.operation` is the name of a function, too.
    import_module("pyinfra.api.operation").__dict__["get_operation_order_from_stack"] = order_of_call
    arguments = import_module("pyinfra.api.arguments")
    arguments.__dict__["all_global_arguments"] = cache(arguments.all_global_arguments)


def _in_main(handler: Callable[[int, FrameType | None], object], number: int, frame: FrameType | None) -> None:
    """Handle a signal so that what is raised comes up where the program itself goes on.

    In gevent's loop there are moments at which it would end the loop instead, and be lost.
    """
    from gevent import get_hub, getcurrent

    hub = get_hub()
    try:
        handler(number, frame)
    except BaseException as error:
        if getcurrent() is hub.parent:
            raise
        hub.loop.run_callback(hub.parent.throw, error)


class _Stand(ModuleType):
    """In the place of paramiko, while pyinfra's API takes the names of a few of its classes."""

    def __getattr__(self, name: str) -> type[Exception]:
        if name.startswith("_"):
            raise AttributeError(name)
        return type(name, (Exception,), {})


def order_of_call(state: Any) -> list[int]:
    """Where an operation stands in a deploy file: the lines that lead to it, from that file on.

    As pyinfra's own says, which reads the source around each of them several times.
    """
    from pyinfra.api.util import PYINFRA_INSTALL_DIR

    lines: list[int] = []
    length = 1
    frame: FrameType | None = sys._getframe(1)
    while frame:
        file = frame.f_code.co_filename
        if not file.startswith(PYINFRA_INSTALL_DIR):
            lines.append(frame.f_lineno)
        if file == state.current_deploy_filename:
            length = len(lines)
        frame = frame.f_back
    return [state.current_op_file_number, *reversed(lines[:length])]
