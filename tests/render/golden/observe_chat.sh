# Also where none is declared any more: what was is taken away.
<<< observe_gateway.sh: if [ -d /etc/llamaherd/chat ]; then
>>>     set -- $seen
    [ $# != 4 ] || say chat container "$@"
fi
