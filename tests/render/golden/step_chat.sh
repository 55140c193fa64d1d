# The page that people chat on: its image first, then everything else, and what served before where it does not come up.
<<< step_unit.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'the chat page' || exit 1
# What we wrote last of files that are made of keys: by that, somebody's change is told from one of keys, which are in no
# plan. It is forgotten before they are written, so that what was cut off tells nothing. The host's lock is held.
forget_written() {
    rm -f /var/lib/llamaherd/written/"$1"
}
# $1 whose files; the files come after it.
note_written() (
    whose=$1
    shift
    umask 077
    mkdir -p /var/lib/llamaherd/written && cd /var/lib/llamaherd/written || exit 0
    # With a secret of this host: who reads a hash cannot try keys.
    [ -s .secret ] || { head -c 32 /dev/urandom >.new && mv -f .new .secret; } || exit 0
    for file; do
        printf '%s\t%s\n' "$(cat .secret "$file" | sha256sum | cut -d ' ' -f 1)" "$file"
    done >.new && mv -f .new "$whose"
)
systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
image=registry.example/open-webui@sha256:efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef
if ! docker image inspect "$image" >/dev/null 2>&1 && ! said=$(docker pull -q "$image" 2>&1); then
    printf '%s\n' "$said" | tail -n 3 | cut -c -300 >&2
    echo "the image of the chat page cannot be fetched; what ran before still does" >&2
    exit 1
fi
install -d -m 0700 /etc/llamaherd/chat && install -d -m 0700 -o 2018725711 -g 2018725711 /var/lib/llamaherd-chat || exit 1
# What served is what ran before the first of the runs that did not come to their end: theirs were never seen healthy.
[ -e /etc/llamaherd/chat/untried ] || [ ! -f /etc/llamaherd/chat/compose.yaml ] || cp -p /etc/llamaherd/chat/compose.yaml /etc/llamaherd/chat/compose.yaml.old || exit 1
# Until it is healthy, the next run knows that this one did not come to its end.
: >/etc/llamaherd/chat/untried || exit 1
if ! [ -s /etc/llamaherd/chat/secret ]; then
    # Of this host alone: it signs who is logged in.
    (umask 077 && head -c 32 /dev/urandom | base64 | tr -d '\n' >/etc/llamaherd/chat/secret.part) &&
        chown 2018725711:2018725711 /etc/llamaherd/chat/secret.part && chmod 0400 /etc/llamaherd/chat/secret.part &&
        mv -f /etc/llamaherd/chat/secret.part /etc/llamaherd/chat/secret || exit 1
fi
forget_written chat
<<< step_unit.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /etc/llamaherd/chat/key /etc/llamaherd/chat 0400 2018725711 <<'END'
base64|a key
base64|\ No newline at end of file
END
put_file /etc/llamaherd/chat/compose.yaml /etc/llamaherd/chat 0600 root <<'END'
base64|<<< chat_compose.yaml: # Written by llamaherd for the gateway of rig `box`: change fleet.yaml, not this file.
base64|>>>     logging: {driver: json-file, options: {max-size: 10m, max-file: "3"}}
END

# They stay, also where the container of before comes back.
note_written chat /etc/llamaherd/chat/key
began=$(date +%s)
up() {
    docker compose --progress plain -f /etc/llamaherd/chat/compose.yaml up -d --force-recreate --remove-orphans --wait --wait-timeout 300 >/run/llamaherd-chat.log 2>&1
}
if ! up; then
    tail -n 5 /run/llamaherd-chat.log | cut -c -300 >&2
    docker logs --tail 20 llamaherd-chat 2>&1 | cut -c -300 >&2
    echo "the chat page is not healthy after $(($(date +%s) - began)) s of 300; its last lines are above, all of them in: docker logs llamaherd-chat" >&2
    if [ -f /etc/llamaherd/chat/compose.yaml.old ]; then
        cp -p /etc/llamaherd/chat/compose.yaml.old /etc/llamaherd/chat/compose.yaml
        if up; then
            rm -f /etc/llamaherd/chat/untried /etc/llamaherd/chat/compose.yaml.old
            echo "what served before does again" >&2
        else
            echo "what served before is not healthy either: docker logs llamaherd-chat" >&2
        fi
    else
        docker compose -f /etc/llamaherd/chat/compose.yaml stop >/dev/null 2>&1
    fi
    exit 1
fi
rm -f /etc/llamaherd/chat/untried /etc/llamaherd/chat/compose.yaml.old
