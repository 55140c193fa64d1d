# The gateway: tried by HAProxy itself before anything of it is switched, and as it was before where that fails.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'the gateway' || exit 1
<<< step_chat.sh: # What we wrote last of files that are made of keys: by that, somebody's change is told from one of keys, which are in no
>>>     done >.new && mv -f .new "$whose"
if ! [ -x /usr/sbin/haproxy ] || ! id -u llamaherd-gateway >/dev/null 2>&1; then
    echo "HAProxy or its user is not there yet: \`herd up\` without --only brings both" >&2
    exit 1
fi
new=/etc/llamaherd/gateway.new
old=/etc/llamaherd/gateway.old
rm -rf "$new" "$old"
# Only its user looks into it: what lies there names who has a key, and holds those of servers.
install -d -m 0700 -o llamaherd-gateway -g llamaherd-gateway "$new" || exit 1
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/llamaherd/gateway.new/haproxy.cfg /etc/llamaherd/gateway.new 0600 llamaherd-gateway <<'END'
base64|<<< gateway.cfg: # Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|>>>     server box.drafter '127.0.0.1:8081' id 1 check maxconn 1
END
put_file /etc/llamaherd/gateway.new/read-model.lua /etc/llamaherd/gateway.new 0600 llamaherd-gateway <<'END'
base64|<<< templates/gateway/read-model.lua: -- Reads `model` from the body of a request, and refuses with a sentence what two programs could read differently.
base64|>>> end)
END
put_file /etc/llamaherd/gateway.new/streams.map /etc/llamaherd/gateway.new 0600 llamaherd-gateway <<'END'
base64|ann 4
base64|tom 4
END
put_file /etc/llamaherd/gateway.new/models.map /etc/llamaherd/gateway.new 0600 llamaherd-gateway <<'END'
base64|<<< gateway_models.map: ann/small m_small
base64|>>> tom/small m_small
END
put_file /etc/llamaherd/gateway.new/lists.map /etc/llamaherd/gateway.new 0600 llamaherd-gateway <<'END'
base64|ann {"object":"list","data":[{"id":"small","object":"model","created":0,"owned_by":"llamaherd"}]}
base64|tom {"object":"list","data":[{"id":"coder","object":"model","created":0,"owned_by":"llamaherd"},{"id":"gpt-4o","object":"model","created":0,"owned_by":"llamaherd"},{"id":"last","object":"model","created":0,"owned_by":"llamaherd"},{"id":"small","object":"model","created":0,"owned_by":"llamaherd"}]}
END
put_file /etc/llamaherd/gateway.new/keys.map /etc/llamaherd/gateway.new 0600 llamaherd-gateway <<'END'
base64|68437e89615a9b16a91de34d6507f60a8ba1cee6fca3d8d579e2177263a83e32 ann
base64|e9ccd35920cb36161d9a599241e7b1fbeef1050480687e0135dd6b4bc74c803c tom
END

if ! said=$(/usr/sbin/haproxy -c -q -C "$new" -f "$new/haproxy.cfg" 2>&1); then
    # What it says may name a line with a key in it: only which line is told.
    printf '%s\n' "$said" | grep -o 'haproxy.cfg:[0-9]*' | head -n 3 >&2
    rm -rf "$new"
    echo "HAProxy does not take this configuration; what ran before still does" >&2
    exit 1
fi
forget_written gateway
[ ! -d /etc/llamaherd/gateway ] || mv -T /etc/llamaherd/gateway "$old" || exit 1
mv -T "$new" /etc/llamaherd/gateway || exit 1
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/systemd/system/llamaherd-gateway.service /etc/systemd/system 0644 root <<'END'
base64|<<< gateway.service: # Written by llamaherd for rig `box`: change fleet.yaml, not this file.
base64|>>> WantedBy=multi-user.target
END
put_file /opt/llamaherd/libexec/gateway-talk /opt/llamaherd/libexec 0755 root <<'END'
base64|<<< templates/gateway/gateway-talk.py: #!/usr/bin/python3 -I
base64|>>>     sys.exit(main(sys.argv[1:]))
END

systemctl daemon-reload
systemctl -q enable llamaherd-gateway.service || exit 1

# Whether what runs has read what lies there.
settled() {
    for _ in $(seq 40); do
        case $(/opt/llamaherd/libexec/gateway-talk state 2>/dev/null) in "8dcb677e333f/8000 same") return 0 ;; esac
        sleep 0.25
    done
    return 1
}
back() {
    echo "the gateway does not run with this; $1" >&2
    journalctl -q -o cat --no-pager -n 20 -u llamaherd-gateway.service 2>/dev/null | grep -v '^[0-9a-f.:]* status=' | cut -c -200 >&2
    if [ -d "$old" ]; then
        rm -rf /etc/llamaherd/gateway
        mv -T "$old" /etc/llamaherd/gateway
        systemctl reload-or-restart llamaherd-gateway.service 2>/dev/null
        echo "what served before does again" >&2
    else
        systemctl stop llamaherd-gateway.service 2>/dev/null
    fi
    exit 1
}
systemctl reset-failed llamaherd-gateway.service 2>/dev/null
systemctl restart llamaherd-gateway.service 2>/dev/null || back "it does not start"
settled || back "it does not say that it has read it"
note_written gateway /etc/llamaherd/gateway/haproxy.cfg /etc/llamaherd/gateway/read-model.lua /etc/llamaherd/gateway/streams.map /etc/llamaherd/gateway/models.map /etc/llamaherd/gateway/lists.map /etc/llamaherd/gateway/keys.map
rm -rf "$old"
