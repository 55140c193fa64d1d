"""The fleet, as pyinfra wants it: every rig that is declared under inventory/, or in HERD_INVENTORY, with its plan."""

from llamaherd.deploy.hosts import pyinfra_hosts

rigs = pyinfra_hosts()
