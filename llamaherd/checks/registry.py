"""Every check, in the order in which one would go through a rig."""

from __future__ import annotations

from llamaherd.checks.amounts import amounts
from llamaherd.checks.arguments import abilities, arguments, options, versions
from llamaherd.checks.built_for import built_for
from llamaherd.checks.cache import cache_types
from llamaherd.checks.compiled import compiled_for
from llamaherd.checks.compiling import compiling
from llamaherd.checks.containers import built_for_containers, compose_there, container_toolkit, images_in_containers
from llamaherd.checks.context import RigCheck
from llamaherd.checks.driver import driver
from llamaherd.checks.efficiency import efficiency, tried_limits
from llamaherd.checks.expecting import expecting
from llamaherd.checks.gpus import clocks, identities, power, sizes, under_wsl
from llamaherd.checks.groups import alike, lone_members, swaps
from llamaherd.checks.images import images
from llamaherd.checks.judging import gate_judged, judged
from llamaherd.checks.memory import memory, slots
from llamaherd.checks.models import (
    beside_models,
    experts,
    lacking_heads,
    loading,
    slow_drafting,
    training,
    vocabularies,
)
from llamaherd.checks.names import files, tags
from llamaherd.checks.paths import paths
from llamaherd.checks.processor import affinity, performance_cores, shared_cores, threads
from llamaherd.checks.reach import any_page, routed
from llamaherd.checks.references import (
    cards_told_apart,
    declared_names,
    heads_for_one_slot,
    key_beyond_loopback,
    one_owner_of_a_port,
)
from llamaherd.checks.refs import refs
from llamaherd.checks.serving import drafts_itself, gates, ports
from llamaherd.checks.splitting import shared_cards, splitting
from llamaherd.checks.store import (
    called_hub,
    idle_neighbours,
    known_neighbours,
    origins,
    reached_neighbours,
    share_port,
    store_folder,
)
from llamaherd.checks.toolchain import architectures, toolkit
from llamaherd.checks.uncounted import uncounted_memory
from llamaherd.checks.unused import unused
from llamaherd.checks.wsl import reclaimed, windows_paths, windows_profile, wsl_memory, wsl_settings

CHECKS: tuple[RigCheck, ...] = (
    *(declared_names, one_owner_of_a_port, key_beyond_loopback, heads_for_one_slot, cards_told_apart),
    *(images_in_containers, compose_there, built_for_containers),
    *(lone_members, alike, swaps),
    *(refs, files, tags, ports, drafts_itself, gates, routed, any_page, unused, images),
    *(called_hub, store_folder, origins, known_neighbours, reached_neighbours, idle_neighbours, share_port),
    *(toolkit, compiling, architectures, driver, container_toolkit),
    *(options, compiled_for, built_for, versions),
    *(identities, amounts, sizes, clocks, under_wsl, power),
    *(expecting, judged, gate_judged, efficiency, tried_limits, splitting, shared_cards, cache_types),
    *(performance_cores, threads, shared_cores, affinity),
    *(wsl_memory, reclaimed, wsl_settings, windows_profile, windows_paths),
    *(arguments, paths, abilities, beside_models, vocabularies),
    *(lacking_heads, training, experts, loading, slow_drafting),
    *(slots, memory, uncounted_memory),
)
