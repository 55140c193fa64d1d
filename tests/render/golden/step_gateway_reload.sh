<<< step_gateway.sh: # The gateway: tried by HAProxy itself before anything of it is switched, and as it was before where that fails.
>>>         systemctl stop llamaherd-gateway.service 2>/dev/null
    exit 1
}
systemctl reload llamaherd-gateway.service || back "it cannot be reloaded"
settled || back "it does not say that it has read it"
note_written gateway /etc/llamaherd/gateway/haproxy.cfg /etc/llamaherd/gateway/read-model.lua /etc/llamaherd/gateway/streams.map /etc/llamaherd/gateway/models.map /etc/llamaherd/gateway/lists.map /etc/llamaherd/gateway/keys.map
rm -rf "$old"
