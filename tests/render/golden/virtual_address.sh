#!/bin/sh
# What keepalived does not know of the host that it runs on.
# `virtual-address configure FROM TO` writes its configuration, for the interface on the way to the other host.
# `virtual-address where` prints the address, and whether it is `here` or `elsewhere`.
# `virtual-address leave` takes it from this host, also where keepalived was killed and could not.
address=10.77.0.50
whole=$address/32
peer=10.77.0.2

case $1 in
configure)
    # Asked each time: with another card in the machine, interfaces have other names.
    way=$(ip -o route get "$peer" 2>/dev/null)
    interface=$(printf '%s\n' "$way" | sed -n 's/.* dev \([^ ]*\) .*/\1/p')
    case "$way" in *" via "* | "local "*) interface= ;; esac
    case $interface in
    '' | *[!A-Za-z0-9._-]*)
        echo "no network of this host has $peer in it" >&2
        exit 1
        ;;
    esac
    sed "s/@INTERFACE@/$interface/" "$2" >"$3"
    ;;
where)
    if [ -n "$(ip -o address show to "$whole" 2>/dev/null)" ]; then
        echo "$address here"
    else
        echo "$address elsewhere"
    fi
    ;;
leave)
    ip -o address show to "$whole" | while read -r _ interface _; do
        ip address del "$whole" dev "$interface"
    done
    ;;
*) exit 2 ;;
esac
