"""What is found wrong with a Compose file."""

from __future__ import annotations

from llamaherd.diagnostics.rule import Rule

REFUSED_BY_COMPOSE = Rule(
    "LH200",
    "Compose refuses a file.",
    why="""
    llamaherd checks it by the JSON Schema that Compose itself uses, of compose-go 2.9.1: keys, types, and what
    may not be left out.
    """,
    example="""
    services:
      server:
        image: example/llama.cpp
        deploy:
          resources:
            reservations:
              devices:
                - driver: nvidia
                  count: all
    """,
    way_out="write what Compose wants there: here `capabilities: [gpu]`.",
)

WANTED_TWICE = Rule(
    "LH201",
    "Two services want the same thing.",
    why="""
    One port of the host, one name of a container, or more of one GPU than there is: vLLM takes 0.9 of it unless
    `--gpu-memory-utilization` says less.
    """,
    example="""
    services:
      large:
        image: example/llama.cpp
        ports: ["127.0.0.1:8080:8080"]
      small:
        image: example/llama.cpp
        ports: ["127.0.0.1:8080:8080"]
    """,
    way_out="give each its own.",
)

NETWORK_MODE = Rule(
    "LH205",
    "A network mode rules out other keys.",
    why="With `network_mode: host` nothing is published. Compose refuses `network_mode` beside `networks`.",
    example="""
    services:
      server:
        image: ghcr.io/ggml-org/llama.cpp:server
        network_mode: host
        ports: ["8080:8080"]
        volumes: ["/srv/models:/models:ro"]
        command: --model /models/qwen.gguf --host 127.0.0.1
    """,
    way_out="leave out what does nothing.",
    sometimes=("warning",),
)


KEY_IN_COMPOSE = Rule(
    "LH202",
    "A key or token stands in a Compose file.",
    why="Compose files are copied, committed and shown.",
    example="""
    services:
      server:
        image: example/llama.cpp
        environment:
          HF_TOKEN: hf_0123456789
    """,
    way_out="put it into a file of mode 0600 that `env_file` names.",
    severity="warning",
)


WAITS_IN_VAIN = Rule(
    "LH206",
    "A service waits for something that never comes.",
    why="It depends on a service that is not there, or on the health of one without a health check.",
    example="""
    services:
      chat:
        image: example/chat
        depends_on: [server]
    """,
    way_out="name a service of the file, and give it a `healthcheck` if its health is waited for.",
    sometimes=("warning",),
)


RESTART_POLICY = Rule(
    "LH208",
    "Docker knows no such restart policy.",
    why="There are `no`, `always`, `on-failure`, which may have a number behind a colon, and `unless-stopped`.",
    example="""
    services:
      server:
        image: example/llama.cpp
        restart: on-error
    """,
    way_out="write one of the four.",
)
