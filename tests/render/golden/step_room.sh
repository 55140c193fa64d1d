# What lacks of GPUs, or of RAM, once processes of a server have ended.
no_room_after() { python3 -I - "$@" <<'END'
<<< templates/serve/room.py: """Whether there is room for a server once what runs as it has ended: on GPUs, or in RAM, on the host and in its control
>>> sys.exit(bool(lacking))
END
}
