"""The keys of an inventory: an example of each, their names in other tools, and the field at a path."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from llamaherd.inventory.schema import Rig
from llamaherd.inventory.schema.fleet_file import FleetFile
from llamaherd.inventory.schema.key_flags import KEY_FLAGS
from llamaherd.inventory.yaml_file import Path_

_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_COMMIT = "0a5be3fa8b1a7ec8d8c1f4b9e0c2d3f4a5b6c7d8"

EXAMPLES: Mapping[str, str] = {
    "Bandwidth.limit": "8MB/s",
    "Bandwidth.hours": '"07:00-23:00"',
    "Card.model": "RTX 3090",
    "Card.uuid": "GPU-5c1d2e7a-0b1f-4c0e-9a55-3f1f0a7c2b10",
    "Card.pci": '"0000:01:00.0"',
    "Card.index": "0",
    "Card.architecture": '"86"',
    "Card.memory": "24576MiB",
    "Card.reserved": "512MiB",
    "Card.power_limit": "280W",
    "Card.clocks": "{max: 1800MHz}",
    "Card.fans": "70%",
    "Clocks.min": "210MHz",
    "Clocks.max": "1800MHz",
    "Connect.host": "duo.lan",
    "Connect.port": "22",
    "Connect.user": "tom",
    "Connect.key": "~/.ssh/id_ed25519",
    "Connect.known_hosts": "~/.ssh/known_hosts",
    "ContainerToolkit.version": "1.20.0",
    "ContainerToolkit.repository": f"{{url: 'https://a.lan/toolkit', key: gpgkey, fingerprint: {_COMMIT.upper()}}}",
    "ContainerToolkit.restart_docker": "true",
    "Cpu.amx": "true",
    "Cpu.cores": "8",
    "Cpu.performance": "6",
    "Draft.mtp": "2",
    "Draft.model": "small",
    "Draft.max": "16",
    "Draft.p_min": "0.75",
    "Driver.branch": "580",
    "Driver.version": '"580.95.05"',
    "Driver.from": "nvidia",
    "Driver.modules": "open",
    "Driver.reboot": "false",
    "Engine.kind": "llama.cpp",
    "Engine.ref": "b11434",
    "Engine.release": "b11434",
    "Engine.source": "{git: 'https://github.com/ggml-org/llama.cpp', ref: b11434}",
    "Engine.image": "ghcr.io/ggml-org/llama.cpp:server-cuda",
    "Engine.options": "{GGML_LTO: true}",
    "Engine.flags": "b11434",
    "Expect.decode": "35 t/s",
    "Expect.prefill": "900 t/s",
    "Expect.power": "600W",
    "Gpus.driver": "{branch: 580}",
    "Alerts.mail": "{to: tom@example.org, server: 'mail.example.org:587', key: {file: keys/mail}}",
    "Alerts.ntfy": "{url: 'https://ntfy.sh/a-long-random-name'}",
    "Alerts.repeat": "12h",
    "Alerts.webhook": "{url: 'https://house.lan/hook', key: {file: keys/hook}}",
    "Mail.key": "{file: keys/mail}",
    "Mail.sender": "attic@example.org",
    "Mail.server": "mail.example.org:587",
    "Mail.to": "tom@example.org",
    "Mail.user": "tom@example.org",
    "Monitoring.alerts": "{ntfy: {url: 'https://ntfy.sh/a-long-random-name'}}",
    "Monitoring.drift": "true",
    "Monitoring.on": "attic",
    "Monitoring.retention": "30d",
    "Monitoring.rigs": "[attic, porch]",
    "Ntfy.key": "{file: keys/ntfy}",
    "Ntfy.url": "https://ntfy.sh/a-long-random-name",
    "Webhook.key": "{file: keys/hook}",
    "Webhook.url": "https://house.lan/hook",
    "Chat.image": "ghcr.io/open-webui/open-webui:v0.12.4",
    "Chat.listen": "0.0.0.0",
    "Chat.port": "3000",
    "Chat.user": "page",
    "Gateway.address": "192.168.1.50",
    "Gateway.body": "4MB",
    "Gateway.chat": "{image: 'ghcr.io/open-webui/open-webui:v0.12.4', user: page}",
    "Gateway.listen": "0.0.0.0",
    "Gateway.models": "{coder: {serve: [attic.coder]}}",
    "Gateway.on": "[attic]",
    "Gateway.port": "8000",
    "Gateway.queue": "{wait: 240s, length: 8}",
    "Gateway.tls": "{ca: keys/ca}",
    "Gateway.users": "{tom: {key: {file: keys/users/tom}}}",
    "Gpus.cuda": '"13.0"',
    "Gpus.repository": f"{{url: 'https://mirror.lan/cuda', key: key.pub, fingerprint: {_COMMIT.upper()}}}",
    "Gpus.container_toolkit": "{version: 1.20.0}",
    "Gpus.cards": "{main: {model: RTX 3090}}",
    "Host.os": "debian-13",
    "Host.cpu": "{cores: 8}",
    "Host.ram": "64GB",
    "Host.wsl": "{memory: 48GB}",
    "Instance.engine": "main",
    "Instance.kv": "q8_0",
    "Instance.cpus": "0-5,12-17",
    "Instance.idle": "{unload: 15m}",
    "Instance.expect": "{decode: 35 t/s}",
    "Instance.tune": "{for: decode, budget: 20m}",
    "Instance.gate": "{decode: -3%, prefill: -5%}",
    "Instance.group": "card",
    "Instance.backend": "systemd",
    "Instance.environment": '{GGML_CUDA_P2P: "1"}',
    "Instance.extra_args": '[--cache-ram, "2048"]',
    "Instance.load_timeout": "600",
    "Instance.drain": "120",
    "Model.hf": "unsloth/Qwen3.6-35B-A3B-MTP-GGUF",
    "Model.revision": "main",
    "Model.quant": "UD-Q4_K_XL",
    "Model.files": '"UD-Q6_K_XL/*.gguf"',
    "Model.mmproj": "mmproj-F16.gguf",
    "Model.file": "~/models/small.gguf",
    "Model.sha256": _SHA256,
    "Quality.kld": "0.005",
    "Quality.same_top": "99%",
    "Repository.url": "'https://mirror.lan/cuda'",
    "Repository.key": "key.pub",
    "Repository.fingerprint": _COMMIT.upper(),
    "Queue.length": "8",
    "Queue.wait": "240s",
    "Rig.rig": "duo",
    "Rig.connect": "{host: duo.lan, user: tom}",
    "Rig.host": "{os: debian-13, cpu: {cores: 8}, ram: 64GB}",
    "Rig.gpus": '{cuda: "13.0", cards: {main: {model: RTX 3090}}}',
    "Rig.suspend": "{after: 30m}",
    "Rig.wake": "{mac: 3c:7c:3f:12:ab:cd}",
    "Rig.engines": "{main: {kind: llama.cpp, ref: b11434}}",
    "Rig.store": "{from: [hub]}",
    "Rig.models": "{small: {hf: bartowski/google_gemma-3-4b-it-GGUF, quant: Q4_K_M}}",
    "Rig.instances": "{chat: {engine: main, model: small, context: 8192, port: 8080}}",
    "Secret.file": "keys/coder",
    "Secret.env": "CODER_KEY",
    "ServedModel.aliases": "[gpt-4o]",
    "ServedModel.fallback": "small",
    "ServedModel.serve": "[attic.coder, porch.coder]",
    "ServedModel.sticky": "session",
    "ServedModel.streams": "2",
    "Sharing.address": "192.168.1.20",
    "Sharing.port": "8970",
    "Source.git": "'https://github.com/ggml-org/llama.cpp'",
    "Source.commit": _COMMIT,
    "Source.ref": "b11434",
    "Source.archive": "'https://mirror.lan/llama.cpp.tar.gz'",
    "Source.sha256": _SHA256,
    "Source.folder": "llama.cpp",
    "Source.overlay": "{cmake/build-info.cmake: 'set(BUILD_NUMBER 1)'}",
    "Source.version": "{number: 11434}",
    "Suspend.after": "30m",
    "Store.path": "/srv/models",
    "Store.mount": "true",
    "Store.from": "[hub, /mnt/usb/models]",
    "Store.bandwidth": "8MB/s",
    "Store.connections": "8",
    "Store.share": "{port: 8970}",
    "Version.number": "11434",
    "Version.commit": "0a5be3f",
    "Tune.for": "decode",
    "Tune.budget": "20m",
    "Tune.quality": "{kld: 0.005, same_top: 99%}",
    "Tune.models": "[coder-q5, coder-q6]",
    "Tune.power": "{max: 300W}",
    "PowerLimits.max": "300W",
    "PowerLimits.min": "200W",
    "PowerLimits.step": "25W",
    "Gate.decode": "-3%",
    "Gate.prefill": "-5%",
    "Gate.kld": "0.02",
    "Gate.budget": "20m",
    "Tls.ca": "keys/ca",
    "Tls.names": "[llm.lan]",
    "Tls.certificate": "tls/gateway.pem",
    "Tls.key": "tls/gateway.key",
    "User.key": "{file: keys/users/tom}",
    "User.models": "[coder]",
    "User.streams": "4",
    "Wake.mac": "3c:7c:3f:12:ab:cd",
    "Wsl.memory": "48GB",
    "Wsl.swap": "0",
    "Wsl.processors": "16",
    "Wsl.networking": "mirrored",
    "Wsl.keep_alive": "true",
    "Wsl.windows_profile": "/mnt/c/Users/tom",
    "Wsl.settings": "{experimental: {autoMemoryReclaim: disabled}}",
    **{row.schema_field: row.example for row in KEY_FLAGS if row.example},
}
"""Examples by model and key, as YAML on one line."""


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
        "host": "address hostname ip addr server ssh",
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
        "ref": "version tag branch commit revision build",
        "release": "prebuilt binary binaries released",
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
        "pooling": "pool pooling_type",
        "on": "gpu gpus card cards device devices cuda_devices cuda_visible_devices",
        "parallel": "slots n_parallel num_parallel concurrency max_parallel",
        "serve": "task role purpose mode",
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
        "share": "sharing serve peers",
    },
    "Bandwidth": {"hours": "time times when between", "limit": "max rate speed"},
    "Sharing": {"address": "host ip listen"},
    "Version": {"number": "build build_number"},
}
"""Other names by model and key, separated by blanks."""

NOT_HERE: Mapping[str, Mapping[str, str]] = {
    "Rig": {
        "version": "leave it out: an inventory has no version",
        "description": "write it as a comment, behind `#`",
        "comment": "write it behind `#`",
    },
    "Connect": {
        "password": "leave it out: `herd` logs in by SSH key, as in `key: ~/.ssh/id_ed25519`",
        "passphrase": "leave it out: add the key to an SSH agent",
        "sudo": "leave it out: a `user` other than root needs `sudo` without a password on the host",
    },
    "Cpu": {
        "threads": "leave it out: `cores` counts physical cores, and SMT siblings are no cores",
        "model": "leave it out: only `cores` of a processor matters",
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
        "description": "write it as a comment, behind `#`",
        "system_prompt": "leave it out: clients send it with each request",
        "replicas": "leave it out: declare each server; `parallel` is the number of requests at once",
        "vram": "leave it out: `herd plan` shows what the server takes of each GPU",
        "max_tokens": "write it as an argument: `extra_args: [--predict, '2048']`",
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
"""Words without a key by model, with what to do instead."""


def also_called(model: str, word: str) -> str | None:
    """Return the key of a model for a word of another tool; None for an unknown word."""
    plain = word.replace("-", "_").lower()
    return next((key for key, words in ALSO_CALLED.get(model, {}).items() if plain in words.split()), None)


class DeclaredAt(NamedTuple):
    """The field at a path: the path without pydantic's own words, the field's name for examples, its type."""

    path: Path_
    field: str
    annotation: Any


def declared_at(path: Path_) -> DeclaredAt:
    """Return the field of the models at a path, or at its nearest parent."""
    annotation: Any = FleetFile if path and path[0] in FleetFile.model_fields else Rig
    field, at = "", list[str | int]()
    for part in path:
        kind = container_type(annotation)
        if get_origin(kind) is tuple and isinstance(part, str):
            kind = container_type(get_args(kind)[0])  # one where several could be
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found = next((f for name, f in kind.model_fields.items() if (f.alias or name) == part), None)
            if found is None:
                break
            field = f"{kind.__name__}.{part}"
            annotation = Annotated[(found.annotation, *found.metadata)] if found.metadata else found.annotation
        elif get_origin(kind) is dict and isinstance(part, str):
            annotation = get_args(kind)[1]
        elif get_origin(kind) is tuple and isinstance(part, int):
            annotation = get_args(kind)[0]
        else:
            break
        at.append(part)
    return DeclaredAt(tuple(at), field, annotation)


def container_type(annotation: Any) -> Any:
    """Return `X` of `X | None` and of `Annotated[X, …]`; of several kinds, the container."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kinds = [container_type(part) for part in get_args(annotation) if part is not type(None)]
    holding = (kind for kind in kinds if get_origin(kind) in (dict, tuple) or hasattr(kind, "model_fields"))
    return next(holding, kinds[0])


def key_choices(annotation: Any) -> list[str]:
    """Return the allowed words of a key; none if it also accepts other values."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    if get_origin(annotation) in (Union, UnionType):
        parts = [key_choices(part) for part in get_args(annotation) if part is not type(None)]
        return [word for part in parts for word in part] if all(parts) else []
    return []


def value_at(data: Any, path: Path_) -> Any:
    """Return the value at a path of plain data; None if there is none."""
    for part in path:
        if isinstance(data, dict):
            data = data.get(part)
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data
