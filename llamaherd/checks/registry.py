"""All checks of a rig and of a fleet file, in the order in which they run."""

from __future__ import annotations

from llamaherd.checks.arguments import (
    check_abilities,
    check_catalogue_versions,
    check_cmake_options,
    check_command_line,
    check_paths,
)
from llamaherd.checks.builds import check_build_architectures, check_build_features
from llamaherd.checks.context import FleetCheck, RigCheck
from llamaherd.checks.driver import check_driver
from llamaherd.checks.gateway import (
    check_fallbacks,
    check_gateway_port,
    check_gateway_rigs,
    check_gateway_servers,
    check_grouped_models,
    check_model_names,
    check_served_names,
    check_server_keys,
    check_server_reach,
    check_shared_servers,
    check_streams,
    check_unique_keys,
    check_user_models,
)
from llamaherd.checks.gateway_users import (
    check_body_size,
    check_chat_port,
    check_chat_tls,
    check_chat_user,
    check_gateway_tls,
    check_has_users,
    check_queue_wait,
)
from llamaherd.checks.gpus import (
    check_gpu_clocks,
    check_gpu_identities,
    check_gpu_memory,
    check_gpus_under_wsl,
    check_power_and_fans,
)
from llamaherd.checks.groups import check_group_settings, check_group_size, check_group_swaps
from llamaherd.checks.hardware import (
    check_affinity,
    check_amounts,
    check_performance_cores,
    check_shared_cores,
    check_threads,
)
from llamaherd.checks.idle import (
    check_idle_engines,
    check_idle_scrapes,
    check_suspend_place,
    check_suspend_wake,
    check_wake_gateway,
)
from llamaherd.checks.memory import check_memory, check_slots, check_uncounted_memory
from llamaherd.checks.models import (
    check_drafting_gain,
    check_experts,
    check_loadable,
    check_prediction_heads,
    check_sidecar_models,
    check_training_context,
    check_vocabularies,
)
from llamaherd.checks.monitoring import (
    check_alert_receivers,
    check_monitor_address,
    check_monitored_rigs,
    check_monitoring_ports,
)
from llamaherd.checks.objectives import (
    check_energy_objective,
    check_expected_power,
    check_gate_quality,
    check_power_limit_trials,
    check_quality,
)
from llamaherd.checks.placement import check_cache_types, check_shared_gpus, check_split_modes
from llamaherd.checks.references import (
    check_declared_names,
    check_gpu_selection,
    check_head_slots,
    check_open_listeners,
    check_port_owners,
    check_unused,
)
from llamaherd.checks.serving import (
    check_compose_available,
    check_container_builds,
    check_container_toolkit,
    check_draft_model,
    check_gates,
    check_image_backends,
    check_ports,
    check_routed_access,
    check_web_access,
)
from llamaherd.checks.sources import check_image_tags, check_images, check_model_files, check_refs
from llamaherd.checks.store import (
    check_known_peers,
    check_origins,
    check_peer_addresses,
    check_rig_name,
    check_share_port,
    check_store_folder,
    check_unused_peers,
)
from llamaherd.checks.tasks import check_task_keys, check_tasks
from llamaherd.checks.toolkit import check_architectures, check_host_compiler, check_toolkit
from llamaherd.checks.virtual_address import (
    check_free_address,
    check_gateway_pair,
    check_listen_address,
    check_pair_addresses,
    check_private_address,
)
from llamaherd.checks.vllm import check_vllm_memory, check_vllm_model
from llamaherd.checks.wsl import (
    check_default_wsl_memory,
    check_memory_reclaim,
    check_windows_paths,
    check_windows_profile,
    check_wsl_memory,
    check_wsl_settings,
)

CHECKS: tuple[RigCheck, ...] = (
    *(check_declared_names, check_port_owners, check_open_listeners, check_head_slots, check_gpu_selection),
    *(check_image_backends, check_compose_available, check_container_builds),
    *(check_group_size, check_group_settings, check_group_swaps),
    *(check_idle_engines, check_wake_gateway, check_suspend_wake, check_suspend_place),
    *(
        check_refs,
        check_model_files,
        check_image_tags,
        check_ports,
        check_draft_model,
        check_gates,
        check_routed_access,
        check_web_access,
        check_unused,
        check_images,
    ),
    *(
        check_rig_name,
        check_store_folder,
        check_origins,
        check_known_peers,
        check_peer_addresses,
        check_unused_peers,
        check_share_port,
    ),
    *(check_toolkit, check_host_compiler, check_architectures, check_driver, check_container_toolkit),
    *(check_cmake_options, check_build_architectures, check_build_features, check_catalogue_versions),
    *(
        check_gpu_identities,
        check_amounts,
        check_gpu_memory,
        check_gpu_clocks,
        check_gpus_under_wsl,
        check_power_and_fans,
    ),
    *(
        check_expected_power,
        check_quality,
        check_gate_quality,
        check_energy_objective,
        check_power_limit_trials,
        check_split_modes,
        check_shared_gpus,
        check_cache_types,
    ),
    *(check_performance_cores, check_threads, check_shared_cores, check_affinity),
    *(
        check_wsl_memory,
        check_default_wsl_memory,
        check_memory_reclaim,
        check_wsl_settings,
        check_windows_profile,
        check_windows_paths,
    ),
    *(check_command_line, check_paths, check_abilities, check_sidecar_models, check_vocabularies),
    *(check_prediction_heads, check_training_context, check_experts, check_loadable, check_drafting_gain),
    *(check_tasks, check_task_keys),
    *(check_slots, check_memory, check_uncounted_memory, check_vllm_memory, check_vllm_model),
)


FLEET_CHECKS: tuple[FleetCheck, ...] = (
    *(
        check_gateway_rigs,
        check_gateway_servers,
        check_model_names,
        check_fallbacks,
        check_user_models,
        check_unique_keys,
    ),
    *(
        check_server_reach,
        check_server_keys,
        check_streams,
        check_shared_servers,
        check_served_names,
        check_gateway_port,
    ),
    check_grouped_models,
    *(check_body_size, check_queue_wait, check_gateway_tls, check_has_users),
    *(check_gateway_pair, check_private_address, check_free_address, check_listen_address, check_pair_addresses),
    *(check_chat_user, check_chat_port, check_chat_tls),
    *(check_monitored_rigs, check_monitor_address, check_monitoring_ports, check_alert_receivers),
    check_idle_scrapes,
)
