"""Every check of a fleet's own file, in the order in which one would go through it."""

from __future__ import annotations

from llamaherd.checks.fleet.address import at_each_other, listens_there, of_a_network, of_nobody, of_two
from llamaherd.checks.fleet.chat import chat_in_the_clear, chat_port, chat_user
from llamaherd.checks.fleet.context import FleetCheck
from llamaherd.checks.fleet.groups import served_in_turn
from llamaherd.checks.fleet.monitoring import free_ports, known_by_address, monitored_rigs, somebody_told
from llamaherd.checks.fleet.names import (
    fallbacks,
    gateway_rigs,
    known_servers,
    names_once,
    one_key_each,
    users_models,
)
from llamaherd.checks.fleet.people import body, in_the_clear, somebody, waiting
from llamaherd.checks.fleet.servers import (
    by_its_name,
    one_key_a_model,
    own_port,
    served_once,
    within_reach,
    within_slots,
)

FLEET_CHECKS: tuple[FleetCheck, ...] = (
    *(gateway_rigs, known_servers, names_once, fallbacks, users_models, one_key_each),
    *(within_reach, one_key_a_model, within_slots, served_once, by_its_name, own_port),
    served_in_turn,
    *(body, waiting, in_the_clear, somebody),
    *(of_two, of_a_network, of_nobody, listens_there, at_each_other),
    *(chat_user, chat_port, chat_in_the_clear),
    *(monitored_rigs, known_by_address, free_ports, somebody_told),
)
