"""What keys of an inventory are called elsewhere, and what has none: what a key that does not exist may have meant."""

from __future__ import annotations

from collections.abc import Mapping

ALSO_CALLED: Mapping[str, Mapping[str, str]] = {
    "Rig": {
        "connect": "ssh connection",
        "engines": "backends runtimes builds",
        "extends": "inherit inherits base parent template include",
        "instance_defaults": "defaults instances_defaults default",
        "host": "machine hardware system",
        "instances": "servers services deployments",
        "rig": "name hostname",
        "store": "storage",
    },
    "Connect": {
        "host": "address hostname ip addr server",
        "key": "ssh_key identity identity_file identityfile key_file keyfile private_key",
        "port": "ssh_port",
        "user": "username login ssh_user",
    },
    "Host": {
        "cpu": "processor cpus cores",
        "os": "distribution distro release operating_system system",
        "ram": "memory mem",
    },
    "Cpu": {"cores": "physical physical_cores count", "performance": "p_cores pcores performance_cores big"},
    "Wsl": {
        "memory": "ram",
        "networking": "networking_mode networkingmode network",
        "processors": "cpus cores",
        "windows_profile": "profile userprofile",
        "keep_alive": "keepalive",
    },
    "Gpus": {
        "cards": "devices gpus",
        "container_toolkit": "nvidia_container_toolkit toolkit",
        "cuda": "cuda_version cuda_toolkit",
        "driver": "nvidia_driver",
    },
    "Card": {
        "architecture": "arch compute_capability compute_cap sm",
        "clocks": "clock_limit lock_clocks",
        "fans": "fan_speed",
        "index": "number device",
        "memory": "vram mem",
        "model": "name gpu type",
        "pci": "bus bus_id pci_id pci_bus slot",
        "power_limit": "power pl tdp watts",
        "uuid": "id gpu_uuid",
    },
    "Driver": {"branch": "major", "from": "source repository origin", "modules": "kernel_modules kind flavour"},
    "Clocks": {"min": "lowest", "max": "highest"},
    "Engine": {
        "image": "container docker docker_image",
        "kind": "type name engine",
        "options": "cmake cmake_options cmake_args build_options defines",
        "ref": "version tag branch commit revision release build",
        "source": "git repo repository url",
    },
    "Source": {
        "archive": "tarball url",
        "commit": "sha revision rev",
        "git": "repo repository remote",
        "ref": "branch tag",
        "sha256": "hash checksum sum",
    },
    "Model": {
        "file": "path local local_path gguf",
        "files": "filename filenames pattern include",
        "hf": "repo repository repo_id huggingface hf_repo hub name model",
        "mmproj": "projector vision",
        "quant": "quantization quantisation quantized type",
        "revision": "branch tag commit ref",
        "sha256": "hash checksum sum",
    },
    "Instance": {
        "api_key": "key token apikey",
        "backend": "runner runtime type deploy",
        "batch": "n_batch",
        "cache_reuse": "prompt_cache",
        "context": "ctx context_length context_size max_context num_ctx n_ctx ctx_len contextsize",
        "cpus": "affinity cpuset cpu_affinity cpu_set",
        "draft": "speculative spec speculation",
        "environment": "env envs environ env_vars variables",
        "expect": "expected expectation",
        "experts_on_cpu": "moe_cpu cpu_experts moe_on_cpu offload_experts experts",
        "extra_args": "args arguments extra options flags cmd command parameters params",
        "flash_attention": "flash",
        "gpu_layers": "layers num_gpu gpu_layer offload_layers",
        "kv": "cache cache_type kv_cache kv_type kv_cache_type cache_types",
        "listen": "bind address ip interface listen_address bind_address",
        "load_timeout": "start_timeout startup_timeout",
        "drain": "drain_timeout drain_seconds grace_period stop_grace_period",
        "mmap": "use_mmap",
        "mlock": "use_mlock",
        "on": "gpu gpus card cards device devices cuda_devices cuda_visible_devices",
        "parallel": "slots n_parallel num_parallel concurrency max_parallel",
        "split": "sm",
        "thinking": "think enable_thinking",
        "threads": "n_threads num_threads num_thread",
        "ubatch": "n_ubatch micro_batch",
    },
    "CacheTypes": {"k": "key keys type_k cache_type_k", "v": "value values type_v cache_type_v"},
    "Draft": {
        "max": "n_max draft_max tokens",
        "model": "draft_model name",
        "mtp": "n num n_tokens mtp_tokens",
        "p_min": "min_p draft_p_min",
    },
    "Sampling": {
        "repeat_penalty": "repetition_penalty rep_penalty",
        "temperature": "temp",
        "top_k": "topk",
        "top_p": "topp",
    },
    "Expect": {
        "decode": "generation tg tps speed tokens_per_second tok_s eval",
        "power": "watts power_limit",
        "prefill": "pp prompt prompt_processing prompt_eval",
    },
    "Secret": {"env": "variable environment env_var", "file": "path filename"},
    "Store": {
        "bandwidth": "limit rate speed bandwidth_limit max_speed",
        "connections": "threads workers parallel streams max_connections",
        "from": "sources origins source origin mirrors",
        "path": "dir directory folder location root",
        "share": "sharing lend serve",
    },
    "Bandwidth": {"hours": "time times when between", "limit": "max rate speed"},
    "Sharing": {"address": "host ip listen"},
    "Version": {"number": "build build_number"},
}
"""By model and key: names that other programs and people have for it, blanks between."""

NOT_HERE: Mapping[str, Mapping[str, str]] = {
    "Connect": {
        "password": "leave it out: `herd` logs in by SSH key, as in `key: ~/.ssh/id_ed25519`",
        "passphrase": "leave it out: add the key to an SSH agent, which is asked for it",
        "sudo": "leave it out: a `user` other than root needs `sudo` without a password on the host",
    },
    "Cpu": {
        "threads": "leave it out: `cores` counts physical cores, and SMT siblings are no cores",
        "model": "leave it out: `cores` is all that is asked of a processor",
    },
    "Model": {
        "url": "name its repository, as in `hf: unsloth/Qwen3.6-35B-A3B-MTP-GGUF`; or fetch it, and give `file` and "
        "`sha256`",
        "context": "write it below the instance that serves the model",
    },
    "Instance": {
        "no_mmap": "write `mmap: false`",
        "no_warmup": "write `warmup: false`",
        "alias": "leave it out: clients ask for a model by its name under `models`",
        "name": "leave it out: an instance is called by the key that it stands below",
        "enabled": "leave it out, or take the instance out of the file: what is declared runs",
        "restart": "leave it out: a server that ends is started again",
        "password": "write where the key is, as in `api_key: {file: keys/coder}`",
    },
    "Sampling": {
        "frequency_penalty": "write it below the instance, as in `extra_args: [--frequency-penalty, '0.5']`",
        "max_tokens": "write it below the instance, as in `extra_args: [--predict, '2048']`",
    },
    "Engine": {"cuda": 'write it under `gpus`, as in `cuda: "13.0"`'},
}
"""By model: what has no key there, with what to do instead."""


def also_called(model: str, word: str) -> str | None:
    """The key of a model that a word stands for elsewhere; None for one that is not known."""
    plain = word.replace("-", "_").lower()
    return next((key for key, words in ALSO_CALLED.get(model, {}).items() if plain in words.split()), None)
