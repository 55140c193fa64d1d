<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> keep_what_serves unit
# Where there is room for both, what is new is started beside what serves, on a port of its own. Once it has answered a
# prompt, connections are led to it while the server itself is started anew: nobody waits for a load.
beside_asked=$(mktemp) && base64 -d >"$beside_asked" <<'END' || exit 1
base64|{"url": "http://127.0.0.1:63090/v1/chat/completions", "metrics": "http://127.0.0.1:63090/metrics", "key": "/etc/llamaherd/keys/chat", "seconds": 120, "drafts": 0, "floor": 0, "body": {"model": "gemma", "messages": [{"role": "user", "content": "The three primary colours are"}], "temperature": 0, "max_tokens": 8}, "kind": "chat", "models": ["gemma"], "models_path": "/v1/models", "props_path": "/props", "health_path": "/health", "listen": "127.0.0.1", "closed": true, "context": 8192}
base64|\ No newline at end of file
END
no_room() { python3 -I - '{"ram": 1073741824, "gpus": [], "listen": "127.0.0.1", "port": 63090, "for_others": false, "direct": 2009999999}' <<'END'
<<< templates/serve/beside-room.py: """Whether a second server can be started beside one, and connections be led to it. Ends with 1, and says why not, also
>>> sys.exit(bool(lacking))
END
}
# $1 is why. What serves was not touched.
beside_failed() {
    end_beside
    note_refused "$1"
    printf '%s\n' "llama-chat serves as before, and has not stopped: what is declared was tried beside it, and $1" >&2
    echo "  help: change what the lines above name, or \`herd up --retry\` to try the same again" >&2
    exit 1
}
beside_logs() { journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID "$beside")" -n "$1" --no-pager -o cat | cut -c -300 >&2; }
# Its port is listened at on the host itself: what Docker alone leads there cannot be led there once more.
beside_listens() { awk -v port="$(printf ':%04X' 63090)" '$4 == "0A" && substr($2, length($2) - 4) == port { found = 1 } END { exit !found }' /proc/net/tcp /proc/net/tcp6; }
lead_to_beside() {
    nft -f - <<END
table inet $beside {
    chain local {
        type nat hook output priority -101;
        meta skgid { 2009999999, $(id -g llama-chat 2>/dev/null || echo llama-chat) } return
        ip daddr 127.0.0.1 tcp dport 8080 tcp flags & (fin | syn | rst | ack) == syn dnat ip to 127.0.0.1:63090
    }
    chain others {
        type nat hook prerouting priority -101;
        ip daddr 127.0.0.1 tcp dport 8080 tcp flags & (fin | syn | rst | ack) == syn dnat ip to 127.0.0.1:63090
    }
}
END
}
start_beside() {
    echo "starting what is declared of llama-chat beside what serves, on port 63090: it has 300 s to load its model"
    began=$(date +%s)
    # In a shell of its own: what serves is not lost because a file cannot be written under /run.
    (
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /run/systemd/system/llamaherd-beside-chat.service /run/systemd/system 0644 root <<'END'
base64|<<< beside_unit.service: # Written by llamaherd for instance `chat` of rig `box`: change the inventory, not this file.
base64|>>> ExecStartPre=-+/opt/llamaherd/libexec/started record unit llamaherd-beside-chat /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5
base64|ExecStart=/opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server --model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf --alias gemma --ctx-size 8192 --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on --parallel 1 --threads 1 --host 127.0.0.1 --port 63090 --metrics --api-key-file /etc/llamaherd/keys/chat
base64|# Started means: it answers. Loading a model from a cold disk takes its time.
base64|ExecStartPost=/opt/llamaherd/libexec/wait-healthy http://127.0.0.1:63090/health
base64|<<< beside_unit.service: TimeoutStartSec=300
base64|>>> ExecStopPost=-+/bin/sh -c "/usr/sbin/nft delete table inet llamaherd-beside-chat 2>/dev/null"
END

    ) && systemctl daemon-reload || return
    if ! systemctl start "$beside" 2>/dev/null; then
        beside_logs 20
        beside_failed "it was not healthy after $(($(date +%s) - began)) s of 300"
    fi
    if ! why=$(proved "$beside_asked"); then
        beside_logs 5
        beside_failed "$why"
    fi
    beside_proved=yes
    if beside_listens && lead_to_beside; then
        direct='setpriv --regid 2009999999 --clear-groups'
        echo "what is declared answers beside it, and is asked now; llama-chat itself is started anew"
    else
        echo "connections cannot be led to it, so llama-chat is away while it loads"
        end_beside
    fi
}
if [ "$(spec_of unit)" != ea3d36a7a072 ]; then
    # That of a run that was cut off has its port.
    end_beside
    if lacks=$(no_room); then
        start_beside
    else
        echo "what is declared of llama-chat is not tried beside what serves, which is away while it loads: $lacks"
    fi
fi
<<< step_unit_from_a_container.sh: mark_untried
>>> systemctl stop llama-chat.service 2>/dev/null
<<< step_unit.sh: let_in
>>> start_probation
