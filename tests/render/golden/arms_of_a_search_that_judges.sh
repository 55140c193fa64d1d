<<< arms.sh: # Starts the arms of a comparison one at a time, as it is told on the same pipe. What serves is stopped meanwhile, and
>>> # What is measured ends, and what served before serves again: whoever began it may be gone.
systemctl stop llamaherd-arm-c-chat.service 2>/dev/null
rm -f /run/systemd/system/llamaherd-arm-c-chat.service /run/llamaherd/arms-text /run/llamaherd/started/llamaherd-arm-c-chat
systemctl daemon-reload
systemctl reset-failed llamaherd-arm-c-chat.service 2>/dev/null
<<< arms.sh: if [ -s /run/llamaherd/arms/served ]; then
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /run/systemd/system/llamaherd-arm-c-chat.service /run/systemd/system 0644 root <<'END'
base64|<<< arm_run.service: # Written by llamaherd for instance `chat` of rig `box`: change the inventory, not this file.
base64|>>> WantedBy=multi-user.target
<<< arms.sh: base64|# It lasts for a block at most: it comes back neither by itself nor at a boot, and ends where nobody ends it.
>>> base64|RuntimeMaxSec=2100
put_file /run/llamaherd/arms-text /run/llamaherd 0644 root <<'END'
base64|What is read.
END

<<< arms.sh: ) && systemctl daemon-reload || exit 1
>>>         echo "failed $1 $why$(journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID "$2")" -n 3 --no-pager -o cat | tr -s '\n\t' '  ' | cut -c -300)"
judge() {
    free=$(df -PB1 /var/tmp | awk 'END { print $4 }')
    if [ "${free:-0}" -lt "$2" ]; then
        printf '%s\n' "failed - there is no room in /var/tmp: $2 bytes are needed, ${free:-0} are free"
        return
    fi
    if systemctl start "$1" 2>/dev/null; then word=judged; else word=failed; fi
    case $(systemctl show -P Result "$1") in
        oom-kill) why='the system ended it for want of RAM; ' ;;
        timeout) why='it took too long; ' ;;
        *) why='' ;;
    esac
    journalctl --sync 2>/dev/null
    said() { journalctl -q _SYSTEMD_INVOCATION_ID="$(systemctl show -P InvocationID "$1")" -n "$2" --no-pager -o cat; }
    if [ $word = judged ]; then
        echo "judged $(said "$1" 200 | tail -c 30000 | base64 -w 0)"
    else
        printf '%s\n' "failed - $why$(said "$1" 5 | tr -s '\n\t' '  ' | tail -c 500)"
    fi
}
<<< arms.sh: echo armed
>>>     # In braces: a shell keeps what it closes for a function of its own, and with that the locks.
    start-C) { start C llamaherd-arm-c-chat.service; } </dev/null 7>&- 8>&- & ;;
    stop-)
        systemctl stop llamaherd-arm-c-chat.service 2>/dev/null
        systemctl reset-failed llamaherd-arm-c-chat.service 2>/dev/null
        echo stopped
        ;;
    unit-*)
        # What is read here is base64: no line end, and no quote.
        if printf %s "$arm" | base64 -d >/run/systemd/system/llamaherd-arm-c-chat.service.part && mv /run/systemd/system/llamaherd-arm-c-chat.service.part /run/systemd/system/llamaherd-arm-c-chat.service && systemctl daemon-reload; then
            echo placed
        else
            echo "failed the unit of a candidate cannot be written"
        fi
        ;;
    judge-*) { judge llamaherd-arm-c-chat.service "$arm"; } </dev/null 7>&- 8>&- & ;;
    esac
done
<<< arms.sh: at_exit
>>> kill $words 2>/dev/null
