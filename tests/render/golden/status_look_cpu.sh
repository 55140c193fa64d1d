{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# What runs here now, in one look that changes nothing. Keys stay in their files, and prompts in their servers.
if command -v python3 >/dev/null; then
    python3 -I - '{"servers": [{"name": "llama-chat", "backend": "systemd", "host": "127.0.0.1", "port": 8080, "health": "/health", "figures": [["/slots", "/metrics"]], "in_turn": [], "models": "/v1/models", "key": "/etc/llamaherd/keys/chat", "one_process": true}, {"name": "llama-drafter", "backend": "compose", "host": "127.0.0.1", "port": 8081, "health": "/health", "figures": [["/slots", "/metrics"]], "in_turn": [], "models": "/v1/models", "key": null, "one_process": true}], "form": "{{.Name}} {{.State.Status}} {{.State.Pid}} {{with .State.Health}}{{.Status}}{{end}}", "fields": [], "releases": "/var/lib/llamaherd/releases"}' <<'END'
<<< templates/status/server.py: """What a server says of itself now: whether it is well, which models are loaded, its requests, and what it writes.
>>>             self.say("waiting", round(waiting))


<<< templates/status/now.py: """What servers, GPUs and the newest release of this host are now: a fact a line, from one look that changes nothing.
>>> """States in which a server is asked nothing."""


main(json.loads(sys.argv[1]), Server)
END
else
    say python
fi

finish
} </dev/null
