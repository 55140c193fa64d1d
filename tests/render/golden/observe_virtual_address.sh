# Also where none is declared any more: what was is taken away.
<<< observe_gateway.sh: if [ -f /etc/systemd/system/llamaherd-address.service ]; then
>>>     spec=$(tr '\0' '\n' 2>/dev/null <"/proc/${pid:-0}/environ" | sed -n 's/^LLAMAHERD_SPEC=//p')
    say virtual-address "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)" "$spec"
fi
