<<< step_project.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> keep_what_serves container
# Where there is room for both, what is new is started beside what serves, on a port of its own. Once it has answered a
# prompt, connections are led to it while the server itself is started anew: nobody waits for a load.
beside_asked=$(mktemp) && base64 -d >"$beside_asked" <<'END' || exit 1
base64|{"url": "http://127.0.0.1:62662/v1/chat/completions", "metrics": "http://127.0.0.1:62662/metrics", "key": null, "seconds": 120, "drafts": 16, "floor": 0, "body": {"model": "moe", "messages": [{"role": "user", "content": "The three primary colours are"}], "temperature": 0, "max_tokens": 64}, "kind": "chat", "models": ["moe"], "models_path": "/v1/models", "props_path": "/props", "health_path": "/health", "listen": "127.0.0.1", "closed": true, "context": 4096}
base64|\ No newline at end of file
END
no_room() { python3 -I - '{"ram": 1073741824, "gpus": [], "listen": "127.0.0.1", "port": 62662, "for_others": false, "direct": 2009999999}' <<'END'
<<< step_unit_beside.sh: """Whether a second server can be started beside one, and connections be led to it. Ends with 1, and says why not, also
>>>     note_refused "$1"
    printf '%s\n' "llama-drafter serves as before, and has not stopped: what is declared was tried beside it, and $1" >&2
    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    exit 1
}
beside_logs() { docker logs --tail "$1" "$beside" 2>&1 | cut -c -300 >&2; }
# Its port is listened at on the host itself: what Docker alone leads there cannot be led there once more.
beside_listens() { awk -v port="$(printf ':%04X' 62662)" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' /proc/net/tcp /proc/net/tcp6; }
<<< step_unit_beside.sh: lead_to_beside() {
>>>         type nat hook output priority -101;
        meta skgid { 2009999999, $(id -g 2093696176 2>/dev/null || echo 2093696176) } return
        ip daddr 127.0.0.1 tcp dport 8081 tcp flags & (fin | syn | rst | ack) == syn dnat ip to 127.0.0.1:62662
    }
    chain others {
        type nat hook prerouting priority -101;
        ip daddr 127.0.0.1 tcp dport 8081 tcp flags & (fin | syn | rst | ack) == syn dnat ip to 127.0.0.1:62662
    }
}
END
}
start_beside() {
    echo "starting what is declared of llama-drafter beside what serves, on port 62662: it has 300 s to load its model"
    began=$(date +%s)
<<< step_unit_beside.sh:     # In a shell of its own: what serves is not lost because a file cannot be written under /run.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /run/systemd/system/llamaherd-beside-drafter.service /run/systemd/system 0644 root <<'END'
base64|<<< beside_container.service: [Unit]
base64|>>> ExecStart=/usr/bin/docker compose --progress plain -f /run/llamaherd/beside/drafter.yaml up --no-color --abort-on-container-exit
base64|ExecStartPost=/opt/llamaherd/libexec/wait-healthy http://127.0.0.1:62662/health
base64|<<< beside_container.service: ExecStop=-/usr/bin/docker compose -f /run/llamaherd/beside/drafter.yaml stop
base64|>>> ExecStopPost=-+/bin/sh -c "/usr/sbin/nft delete table inet llamaherd-beside-drafter 2>/dev/null"
END
put_file /run/llamaherd/beside/drafter.yaml /run/llamaherd/beside 0644 root <<'END'
base64|<<< beside_container.yaml: # Written by llamaherd for instance `drafter` of rig `box`: change the inventory, not this file.
base64|>>>     entrypoint: ["/usr/local/bin/llama-server"]
base64|    command: ["--model", "/var/lib/llamaherd/models/local/0404040404040404/moe.gguf", "--alias", "moe", "--ctx-size", "4096", "--cache-type-k", "f16", "--cache-type-v", "f16", "--flash-attn", "auto", "--parallel", "1", "--threads", "1", "--host", "127.0.0.1", "--port", "62662", "--metrics", "--spec-type", "draft-mtp", "--spec-draft-n-max", "2"]
base64|    environment: {"LLAMA_ARG_CORS_ORIGINS": "localhost"}
base64|    labels:
base64|      llamaherd.spec: "6b3e9ef709bc"
base64|      llamaherd.port: "62662"
<<< step_project.sh: base64|    user: "2093696176:2093696176"
>>> base64|    healthcheck:
base64|      test: ["CMD", "/usr/bin/busybox", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1:62662/health"]
base64|<<< beside_container.yaml:       interval: 30s
base64|>>>     logging: {driver: json-file, options: {max-size: 10m, max-file: "3"}}
END

<<< step_unit_beside.sh:     ) && systemctl daemon-reload || return
>>>         direct='setpriv --regid 2009999999 --clear-groups'
        echo "what is declared answers beside it, and is asked now; llama-drafter itself is started anew"
    else
        echo "connections cannot be led to it, so llama-drafter is away while it loads"
        end_beside
    fi
}
if [ "$(spec_of container)" != 6b3e9ef709bc ]; then
<<< step_unit_beside.sh:     # That of a run that was cut off has its port.
>>>     else
        echo "what is declared of llama-drafter is not tried beside what serves, which is away while it loads: $lacks"
    fi
fi
<<< step_project.sh: mark_untried
>>> start_probation
