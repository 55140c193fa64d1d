{
<<< status_look_cpu.sh: LC_ALL=C
>>> else
    say python
fi
say gateway
# Asks the gateway that runs, or tells it what becomes of a server, by the program that came with it.
if ! [ -x /opt/llamaherd/libexec/gateway-talk ]; then
    say none
    finish
fi
said=$(/opt/llamaherd/libexec/gateway-talk status 2>&1)
case $? in
0)
    printf '%s\n' "$said"
    systemctl list-units --plain --no-legend --no-pager 'llamaherd-ready-*.timer' | while read -r unit _; do
        unit=${unit#llamaherd-ready-}
        say returning "${unit%.timer}"
    done
    [ ! -x /opt/llamaherd/libexec/virtual-address ] || say address $(/opt/llamaherd/libexec/virtual-address where)
    ;;
2) say older ;;
*) say silent "$(printf '%s' "$said" | tr '\t\n' '  ' | cut -c -200)" ;;
esac

finish
} </dev/null
