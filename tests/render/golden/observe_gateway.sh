{
<<< observe_cpu.sh: LC_ALL=C
>>> grep -qs '^Status: hold ' "$status" && awk '/^Package: / { name = $2 } /^Status: hold / { print "machine\theld\t" name }' "$status"
dpkg-query -W -f 'package\t${Package}\t${db:Status-Status}\n' ca-certificates ccache cmake curl g++ git haproxy libssl-dev mmdebstrap ninja-build python3 2>/dev/null
<<< observe_gpu.sh: while IFS=: read -r user secret number group name home shell; do
>>> done <<END
$(getent passwd llama llama-build llama-fetch llama-chat llamaherd-gateway)
END
# What an account of ours must not have: a number that is another's, who may then do what it may, and a password.
shadow=/etc/shadow
[ -r "$shadow" ] || shadow=/dev/null
getent passwd | ours=' llama llama-build llama-fetch llama-chat llamaherd-gateway ' awk -F : '
<<< observe_cpu.sh:     FILENAME ~ /^\// { if (index(ENVIRON["ours"], " " $1 " ") && $2 !~ /^[!*]/) print "password\t" $1; next }
>>>     say power "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)"

# Also where none is declared any more: what was is taken away.
if [ -f /etc/systemd/system/llamaherd-gateway.service ]; then
    show=$(systemctl show -p ActiveState,UnitFileState,NeedDaemonReload,MainPID llamaherd-gateway.service)
    of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    pid=$(of MainPID)
    spec=$(tr '\0' '\n' 2>/dev/null <"/proc/${pid:-0}/environ" | sed -n 's/^LLAMAHERD_SPEC=//p')
    say gateway unit "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)" "$spec"
    if [ "${pid:-0}" != 0 ] && [ -x /opt/llamaherd/libexec/gateway-talk ]; then
        said=$(/opt/llamaherd/libexec/gateway-talk state 2>/dev/null) && say gateway running $said
    fi
fi
# The distribution starts its own unit, which serves nobody as long as its configuration is as it came.
if systemctl -q is-enabled haproxy.service 2>/dev/null || systemctl -q is-active haproxy.service 2>/dev/null; then
    dpkg --verify haproxy 2>/dev/null | grep -q ' /etc/haproxy/haproxy.cfg$' || say gateway idle-own
fi


# Also where none is declared any more: what was is taken away.
if [ -f /etc/systemd/system/llamaherd-address.service ]; then
    show=$(systemctl show -p ActiveState,UnitFileState,NeedDaemonReload,MainPID llamaherd-address.service)
    of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    pid=$(of MainPID)
    spec=$(tr '\0' '\n' 2>/dev/null <"/proc/${pid:-0}/environ" | sed -n 's/^LLAMAHERD_SPEC=//p')
    say virtual-address "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)" "$spec"
fi

<<< observe_gpu.sh: finish
>>> # and the end is the other side's to say: without either, there is none.
{
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

} </dev/null

<<< observe_gpu.sh: cat
>>> } </dev/null
