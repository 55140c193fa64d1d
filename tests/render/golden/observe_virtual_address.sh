# Also where none is declared any more: what was is taken away.
if [ -f /etc/systemd/system/llamaherd-address.service ]; then
    show=$(systemctl show -p ActiveState,UnitFileState,NeedDaemonReload,MainPID llamaherd-address.service)
    of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    pid=$(of MainPID)
    spec=$(tr '\0' '\n' 2>/dev/null <"/proc/${pid:-0}/environ" | sed -n 's/^LLAMAHERD_SPEC=//p')
    say virtual-address "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)" "$spec"
fi
