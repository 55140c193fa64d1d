"""Every check, in the order in which one would go through a rig."""

from __future__ import annotations

from llamaherd.checks.amounts import amounts
from llamaherd.checks.arguments import abilities, arguments, options, versions
from llamaherd.checks.built_for import built_for
from llamaherd.checks.cache import cache_types
from llamaherd.checks.cards import identities, power, sizes
from llamaherd.checks.compiled import compiled_for
from llamaherd.checks.containers import container_toolkit
from llamaherd.checks.context import Check
from llamaherd.checks.images import images
from llamaherd.checks.memory import memory, slots
from llamaherd.checks.models import beside_models, drafting, models, vocabularies
from llamaherd.checks.names import names
from llamaherd.checks.paths import paths
from llamaherd.checks.processor import affinity, threads
from llamaherd.checks.reach import keyless
from llamaherd.checks.references import (
    built_for_containers,
    cards_told_apart,
    compose_there,
    declared_names,
    heads_for_one_slot,
    images_in_containers,
    key_beyond_loopback,
    one_owner_of_a_port,
)
from llamaherd.checks.refs import refs
from llamaherd.checks.serving import drafts, ports
from llamaherd.checks.splitting import shared_cards, splitting
from llamaherd.checks.store import store
from llamaherd.checks.toolchain import architectures, driver, toolkit
from llamaherd.checks.uncounted import uncounted_memory
from llamaherd.checks.unused import unused
from llamaherd.checks.wsl import windows_paths, wsl_memory, wsl_settings

CHECKS: tuple[Check, ...] = (
    *(declared_names, one_owner_of_a_port, key_beyond_loopback, heads_for_one_slot),
    *(images_in_containers, compose_there, cards_told_apart, built_for_containers),
    *(refs, names, ports, drafts, keyless, unused, images, store),
    *(toolkit, architectures, driver, container_toolkit, options, compiled_for, built_for, versions),
    *(identities, amounts, sizes, power, splitting, shared_cards, cache_types),
    *(threads, affinity),
    *(wsl_memory, wsl_settings, windows_paths),
    *(arguments, paths, abilities, models, beside_models, drafting, vocabularies, slots, memory),
    *(uncounted_memory,),
)
