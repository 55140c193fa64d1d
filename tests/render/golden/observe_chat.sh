# Also where none is declared any more: what was is taken away.
if [ -d /etc/llamaherd/chat ]; then
    say chat there
    [ ! -e /etc/llamaherd/chat/untried ] || say chat untried
    [ -s /etc/llamaherd/chat/secret ] || say chat unsigned
    seen=$(query_docker inspect --type container --format '{{.State.Status}} {{with .State.Health}}{{.Status}}{{else}}none{{end}} {{index .Config.Labels "llamaherd.spec"}} {{index .Config.Labels "llamaherd.port"}}' llamaherd-chat 2>/dev/null) || [ $? -lt 75 ] || unread Docker
    # One of somebody else has no labels of ours.
    set -- $seen
    [ $# != 4 ] || say chat container "$@"
fi
