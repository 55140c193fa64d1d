#!/bin/sh
# Written by llamaherd. Judges a driver at the first boot with it: where it does not answer, the one before comes back,
# from what was kept, and the host is booted once more. It does this once: whatever comes of it, nothing is kept then.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
before=/var/lib/llamaherd/driver-before
[ ! -e /run/llamaherd/driver-armed ] || exit 0
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 'judging a driver' || exit 1
<<< step_driver_distribution.sh: # Nobody goes back any more, and what was kept for that is removed.
>>>     rm -rf /var/lib/llamaherd/driver-before /var/lib/llamaherd/driver-before.new /run/llamaherd/driver-armed
from=$(cat "$before/from") to=$(cat "$before/to") cards=$(cat "$before/cards")
[ "$from" ] && [ "$to" ] && [ "$cards" ] || {
    disarm
    exit 1
}
mkdir -p /var/log/llamaherd
log=/var/log/llamaherd/apt.log
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# The clock may jump at boot; this one does not.
now() { cut -d . -f 1 /proc/uptime; }

# Whether as many GPUs answer as did before, else `why`. What hangs in the driver cannot even be killed: it is left
# behind.
answers() {
    rm -f "$work/code"
    {
        timeout -k 5 20 modprobe nvidia && timeout -k 5 20 modprobe nvidia_uvm
        timeout -k 5 30 nvidia-smi -L >"$work/said" 2>&1
        echo $? >"$work/code.new" && mv "$work/code.new" "$work/code"
    } >/dev/null 2>&1 8>&- &
    asked=$(now)
    until [ -e "$work/code" ]; do
        [ $(($(now) - asked)) -lt 60 ] || {
            why='the driver hangs'
            return 1
        }
        sleep 0.2
    done
    code=$(cat "$work/code")
    said=$(grep . "$work/said" | head -n 1 | tr -c '[:print:]\n' ' ' | cut -c -200)
    why="nvidia-smi: ${said:-nothing}"
    [ "$code" != 124 ] || why='nvidia-smi hangs'
    [ "$code" = 0 ] || return 1
    shown=$(grep -c '^GPU ' "$work/said")
    why="nvidia-smi shows $shown of $cards GPUs"
    [ "$shown" -ge "$cards" ]
}
# $1 seconds
answers_within() {
    began=$(now)
    until answers; do
        [ $(($(now) - began)) -lt "$1" ] || return 1
        sleep 2
    done
}

# $1: why
refuse() {
    printf '%s\t%s\t%s\t%s\t%s\n' "$to" 'open nvidia' "$(date -u '+%F %T UTC')" "$from" "$1" >/var/lib/llamaherd/driver-refused.new &&
        mv -f /var/lib/llamaherd/driver-refused.new /var/lib/llamaherd/driver-refused
    echo "driver $to did not come up: $1"
    sync
}

# What is on disk becomes what it was. What was written for the new driver goes first, so that nothing pins that.
bring_back() {
    date -u "+== %F %T back to driver $from" >>"$log"
    for path in /etc/apt/preferences.d/00-llamaherd-nvidia-kept /etc/apt/preferences.d/00-llamaherd-nvidia-wanted /etc/apt/apt.conf.d/52llamaherd-nvidia; do
        rm -f "$path"
        [ ! -e "$before/files/${path##*/}" ] || cp -p "$before/files/${path##*/}" "$path" || return 1
    done
    dpkg --configure -a >>"$log" 2>&1
    set -- "$before"/debs/*.deb
    while read -r name; do
        ! dpkg-query -W "$name" >/dev/null 2>&1 || set -- "$@" "$name-"
    done <"$before/new"
    # What is named is what comes: preferences of the new driver's packages do not count, and nothing is fetched.
    apt-get -q -y -o Dir::Etc::preferencesparts=/dev/null -o Dir::Etc::preferences=/dev/null -o DPkg::Lock::Timeout=600 \
        -o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10 \
        -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
        install --no-install-recommends --allow-downgrades "$@" >>"$log" 2>&1 || return 1
    dpkg-query -W -f '${Package} ${db:Status-Status}\n' 'nvidia-driver-pinning-*' 2>/dev/null |
        sed -n 's/ config-files$//p' | xargs -r dpkg --purge >>"$log" 2>&1
    kernel=$(readlink -f /boot/vmlinuz 2>/dev/null || readlink -f /vmlinuz 2>/dev/null)
    [ -f "$kernel" ] || kernel=$(ls /boot/vmlinuz-* 2>/dev/null | sort -V | tail -n 1)
    kernel=${kernel##*/vmlinuz-}
    [ "$(modinfo -k "$kernel" -F version nvidia 2>/dev/null)" = "$from" ] || dkms autoinstall -k "$kernel" >>"$log" 2>&1
    [ "$(modinfo -k "$kernel" -F version nvidia 2>/dev/null)" = "$from" ] || return 1
    systemctl daemon-reload
    [ "$(systemctl is-enabled nvidia-persistenced.service 2>/dev/null)" != disabled ] ||
        systemctl -q enable nvidia-persistenced.service
}

if answers_within 60; then
    rm -f /var/lib/llamaherd/driver-refused
    disarm
    exit 0
fi
# Where the power goes while packages are brought back, the next boot goes on; not for ever.
echo again >>"$before/tries"
if [ "$(grep -c . "$before/tries")" -gt 3 ] || ! bring_back; then
    refuse "$why; driver $from could not be brought back, $log on the host says why"
    disarm
    exit 1
fi
refuse "$why"
rm -f /var/lib/llamaherd/driver-reboot
# The mark is gone after the reboot; until then nobody takes this for its end.
mkdir -p /run/llamaherd
: >/run/llamaherd/reboot
disarm
systemctl --no-block reboot
sleep 300
exit 1
