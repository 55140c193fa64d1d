"""The fleet for pyinfra: every rig that is declared under inventory/, or in HERD_INVENTORY, with its plan."""

from llamaherd.deploy.run import pyinfra_hosts

rigs = pyinfra_hosts()
