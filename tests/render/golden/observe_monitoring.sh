{
<<< observe_cpu.sh: LC_ALL=C
>>> grep -qs '^Status: hold ' "$status" && awk '/^Package: / { name = $2 } /^Status: hold / { print "machine\theld\t" name }' "$status"
dpkg-query -W -f 'package\t${Package}\t${db:Status-Status}\n' ca-certificates ccache cmake curl dbus g++ git libssl-dev mmdebstrap ninja-build prometheus prometheus-alertmanager prometheus-node-exporter python3 2>/dev/null
<<< observe_gpu.sh: while IFS=: read -r user secret number group name home shell; do
>>> done <<END
$(getent passwd llama llama-build llama-fetch llama-chat llamaherd-exporter llamaherd-monitor)
END
# What an account of ours must not have: a number that is another's, who may then do what it may, and a password.
shadow=/etc/shadow
[ -r "$shadow" ] || shadow=/dev/null
getent passwd | ours=' llama llama-build llama-fetch llama-chat llamaherd-exporter llamaherd-monitor ' awk -F : '
<<< observe_gateway.sh:     FILENAME ~ /^\// { if (index(ENVIRON["ours"], " " $1 " ") && $2 !~ /^[!*]/) print "password\t" $1; next }
>>>     say gateway unit "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)" "$spec"
fi


<<< observe_virtual_address.sh: # Also where none is declared any more: what was is taken away.
>>>     say virtual-address "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)" "$spec"


# Also where nothing is declared any more: what was is taken away.
for unit in llamaherd-figures.timer llamaherd-exporter.service llamaherd-prometheus.service llamaherd-alertmanager.service; do
    [ -f "/etc/systemd/system/$unit" ] || continue
    show=$(systemctl show -p ActiveState,UnitFileState,NeedDaemonReload,MainPID "$unit")
    of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    pid=$(of MainPID)
    spec=$(tr '\0' '\n' 2>/dev/null <"/proc/${pid:-0}/environ" | sed -n 's/^LLAMAHERD_SPEC=//p')
    say monitoring unit "$unit" "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)" "$spec"
done
# What the Prometheus that runs has read, as a rule of it says.
prometheus_read() {
    curl -q -s --noproxy '*' --max-time 5 'http://127.0.0.1:9090/api/v1/rules?type=record' 2>/dev/null |
        grep -o '"spec":"[0-9a-f]*"' | cut -d '"' -f 4 | head -n 1
}
read=$(prometheus_read)
[ -z "$read" ] || say monitoring read "$read"
# The distribution starts units of its own, which nobody asked for as long as nobody has changed them.
for package in prometheus-node-exporter prometheus prometheus-alertmanager; do
    if systemctl -q is-enabled "$package.service" 2>/dev/null || systemctl -q is-active "$package.service" 2>/dev/null; then
        dpkg --verify "$package" 2>/dev/null | grep -q ' /etc/' || say monitoring idle "$package"
    fi
done

<<< observe_gateway.sh: finish
>>> finish
} </dev/null
