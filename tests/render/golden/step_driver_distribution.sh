<<< step_driver.sh: # Brings NVIDIA's driver: what would be done is worked out and judged first, with our preferences beside the host's own,
>>> base64|# The other source of drivers: two are never mixed.
base64|<<< driver_wanted_distribution.pref: Package: nvidia-driver* nvidia-open* nvidia-headless* nvidia-dkms* nvidia-kernel* nvidia-firmware* nvidia-utils* nvidia-compute-utils* nvidia-smi nvidia-persistenced nvidia-modprobe nvidia-settings nvidia-xconfig nvidia-alternative nvidia-legacy-check nvidia-suspend-common nvidia-egl* nvidia-vulkan* nvidia-opencl* nvidia-vdpau* nvidia-cuda-mps nvidia-libopencl1 libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1 libnvidia-[!c]* libnvidia-cfg1* libnvidia-compute* libnvidia-common* libnvidia-compiler* libgl1-nvidia* libglx-nvidia* libegl-nvidia* libgles-nvidia* libxnvctrl* firmware-nvidia-gsp* firmware-nvidia-graphics xserver-xorg-video-nvidia* linux-modules-nvidia-* linux-objects-nvidia-* linux-signatures-nvidia-*
base64|>>> Pin-Priority: 1001
END
rm -f "$work/preferences/00-llamaherd-nvidia-kept"
<<< step_driver.sh: apt() {
>>> # All at once: apt takes seconds to match preferences with all packages.
set -- libnvidia-compute-580  
for kernel in ; do set -- "$@" "linux-headers-$kernel"; done
<<< step_driver.sh: apt cache policy "$@" 2>/dev/null |
>>>     has=$(apt-cache -q madison libnvidia-compute-580 2>/dev/null | awk '{print $3}' | sed 's/^[0-9]*://; s/-.*//' | sort -uV | tail -n 8 | paste -sd ' ')
    fail 'the distribution has no driver 580 (libnvidia-compute-580)' "  help: it has ${has:-none}; declare one of these, or another \`from\`"
    ;;
esac
set -- libnvidia-compute-580 nvidia-headless-no-dkms-580-open nvidia-compute-utils-580 nvidia-utils-580 linux-modules-nvidia-580-open-generic
for each in ; do
    case $(candidate "$each") in 580.*) set -- "$@" "$each" ;; esac
done
for kernel in ; do
<<< step_driver.sh:     case $(candidate "linux-headers-$kernel") in
>>> # What is of another branch goes with it to the new one, if that has it by the same name; else it goes.
for each in ; do
<<< step_driver.sh:     case " $* " in *" $each "*) continue ;; esac
>>>     *) case $each in nvidia-modprobe | nvidia-settings | nvidia-xconfig) ;; *) set -- "$@" "$each-" ;; esac ;;
for each in ; do
<<< step_driver.sh:     case $(candidate "$each") in '' | '(none)') ;; *) pinning=$each && break ;; esac
>>>         "  help: remove what is named yourself, or bring it to the declared branch, then run this again"
# Keeps what it takes to go back without a network, before anything is changed, and has the next boot judge the new one.
# Nobody goes back any more, and what was kept for that is removed.
disarm() {
    systemctl -q disable llamaherd-driver-undo.service 2>/dev/null
    rm -f /etc/systemd/system/llamaherd-driver-undo.service
    rm -rf /var/lib/llamaherd/driver-before /var/lib/llamaherd/driver-before.new /run/llamaherd/driver-armed
}
before=/var/lib/llamaherd/driver-before
parts() {
    while read -r name; do
        case $name in nvidia-driver* | nvidia-open* | nvidia-headless* | nvidia-dkms* | nvidia-kernel* | nvidia-firmware* | nvidia-utils* | nvidia-compute-utils* | nvidia-smi | nvidia-persistenced | nvidia-modprobe | nvidia-settings | nvidia-xconfig | nvidia-alternative | nvidia-legacy-check | nvidia-suspend-common | nvidia-egl* | nvidia-vulkan* | nvidia-opencl* | nvidia-vdpau* | nvidia-cuda-mps | nvidia-libopencl1 | libcuda1 | libcudadebugger1 | libnvcuvid1 | libnvoptix1 | libnvidia-[!c]* | libnvidia-cfg1* | libnvidia-compute* | libnvidia-common* | libnvidia-compiler* | libgl1-nvidia* | libglx-nvidia* | libegl-nvidia* | libgles-nvidia* | libxnvctrl* | firmware-nvidia-gsp* | firmware-nvidia-graphics | xserver-xorg-video-nvidia* | linux-modules-nvidia-* | linux-objects-nvidia-* | linux-signatures-nvidia-* | cuda-drivers*) printf '%s\n' "$name" ;; esac
    done
}
# What comes new of the driver goes again on the way back, short of tools, which go with any.
awk '$1 == "Inst" && $3 !~ /^\[/ {print $2}' "$work/said" | parts | while read -r name; do
    case $name in nvidia-modprobe | nvidia-settings | nvidia-xconfig) ;; *) printf '%s\n' "$name" ;; esac
done >"$work/new"
awk '($1 == "Inst" && $3 ~ /^\[/) || $1 == "Remv" || $1 == "Purg" {print $2}' "$work/said" | parts >"$work/old"
# Copies here what apt has kept, else fetches it, as long as somebody has it; `why` says what is in the way.
keep_packages() {
    size=0
    set --
    while read -r name; do
        about=$(dpkg-query -W -f '${Package}_${Version}_${Architecture}.deb' "$name") || return 1
        file=/var/cache/apt/archives/$(printf '%s' "$about" | sed 's/:/%3a/g')
        if dpkg-deb -c "$file" >/dev/null 2>&1; then
            size=$((size + $(stat -c %s "$file")))
            cp "$file" . || return 1
        else
            set -- "$@" "$name=$(dpkg-query -W -f '${Version}' "$name")"
        fi
    done <"$work/old"
    if [ $# -gt 0 ]; then
        uris=$(apt-get -q download --print-uris "$@" 2>&1) || {
            why=$(printf '%s\n' "$uris" | sed -n 's/^E: //p' | head -n 1)
            return 1
        }
        size=$((size + $(printf '%s\n' "$uris" | awk -F"' " '{split($2, a, " "); sum += a[2]} END {printf "%d", sum}')))
    fi
    if [ "$size" -gt 1000000000 ] || [ $(($(df -B1 --output=avail . | tail -n 1) - size)) -lt 2000000000 ]; then
        why="its packages take $((size >> 20)) MiB"
        return 1
    fi
    [ $# -eq 0 ] || timeout 1800 apt-get -q download "$@" >"$work/fetched" 2>&1 || {
        why=$(sed -n 's/^E: //p; s/^Err[^ ]* //p' "$work/fetched" | head -n 1)
        return 1
    }
}
# $1 the version that works now, $2 the one that comes
keep() {
    why="$before cannot be written"
    rm -rf "$before" "$before.new"
    mkdir -p "${before%/*}" && mkdir -m 0700 "$before.new" && mkdir "$before.new/debs" "$before.new/files" &&
        cd "$before.new/debs" && keep_packages && cd .. || return 1
    for path in /etc/apt/preferences.d/00-llamaherd-nvidia-kept /etc/apt/preferences.d/00-llamaherd-nvidia-wanted /etc/apt/apt.conf.d/52llamaherd-nvidia; do
        [ ! -e "$path" ] || cp -p "$path" files/ || return 1
    done
    cp "$work/new" new && printf '%s\n' "$1" >from && printf '%s\n' "$2" >to &&
        timeout 30 nvidia-smi -L | grep -c '^GPU ' >cards && sync && cd / && mv "$before.new" "$before" && sync
}
to=$(candidate libnvidia-compute-580 | sed 's/-.*//; q')
works=$(cat /sys/module/nvidia/version 2>/dev/null) && timeout 30 nvidia-smi -L >/dev/null 2>&1 || works=''
if [ -d "$before" ] && [ -e /run/llamaherd/driver-armed ]; then
    # What an earlier run has kept in this boot is what worked.
    printf '%s\n' "$to" >"$before/to"
    for name in $(cat "$work/new"); do
        grep -qx "$name" "$before/new" || ls "$before/debs" | grep -q "^${name%:*}_" || printf '%s\n' "$name" >>"$before/new"
    done
    echo "driver $(cat "$before/from") is kept: it comes back by itself where $to does not answer after the next boot"
elif [ -z "$works" ]; then
    disarm
    echo "no driver answers here now, so that there is none to go back to where $to does not come up"
elif keep "$works" "$to"; then
    mkdir -p /run/llamaherd
    : >/run/llamaherd/driver-armed || exit 1
    (
<<< step_driver.sh: # Writes files beside their places, then renames each: no reader ever sees half a file.
>>>     } 2>&1) || cannot_write "$1" "$why"
put_file /opt/llamaherd/libexec/driver-undo /opt/llamaherd/libexec 0755 root <<'END'
base64|#!/bin/sh
base64|# Written by llamaherd. Judges a driver at the first boot with it: where it does not answer, the one before comes back,
base64|# from what was kept, and the host is booted once more. It does this once: whatever comes of it, nothing is kept then.
base64|export DEBIAN_FRONTEND=noninteractive LC_ALL=C
base64|PATH=$PATH:/usr/sbin:/sbin
base64|before=/var/lib/llamaherd/driver-before
base64|[ ! -e /run/llamaherd/driver-armed ] || exit 0
base64|<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
base64|>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
base64|hold 8 host 3600 'judging a driver' || exit 1
base64|# Nobody goes back any more, and what was kept for that is removed.
base64|disarm() {
base64|    systemctl -q disable llamaherd-driver-undo.service 2>/dev/null
base64|    rm -f /etc/systemd/system/llamaherd-driver-undo.service
base64|    rm -rf /var/lib/llamaherd/driver-before /var/lib/llamaherd/driver-before.new /run/llamaherd/driver-armed
base64|}
base64|from=$(cat "$before/from") to=$(cat "$before/to") cards=$(cat "$before/cards")
base64|[ "$from" ] && [ "$to" ] && [ "$cards" ] || {
base64|    disarm
base64|    exit 1
base64|}
base64|mkdir -p /var/log/llamaherd
base64|log=/var/log/llamaherd/apt.log
base64|work=$(mktemp -d) || exit 1
base64|trap 'rm -rf "$work"' EXIT
base64|# The clock may jump at boot; this one does not.
base64|now() { cut -d . -f 1 /proc/uptime; }
base64|
base64|# Whether as many GPUs answer as did before, else `why`. What hangs in the driver cannot even be killed: it is left
base64|# behind.
base64|answers() {
base64|    rm -f "$work/code"
base64|    {
base64|        timeout -k 5 20 modprobe nvidia && timeout -k 5 20 modprobe nvidia_uvm
base64|        timeout -k 5 30 nvidia-smi -L >"$work/said" 2>&1
base64|        echo $? >"$work/code.new" && mv "$work/code.new" "$work/code"
base64|    } >/dev/null 2>&1 8>&- &
base64|    asked=$(now)
base64|    until [ -e "$work/code" ]; do
base64|        [ $(($(now) - asked)) -lt 60 ] || {
base64|            why='the driver hangs'
base64|            return 1
base64|        }
base64|        sleep 0.2
base64|    done
base64|    code=$(cat "$work/code")
base64|    said=$(grep . "$work/said" | head -n 1 | tr -c '[:print:]\n' ' ' | cut -c -200)
base64|    why="nvidia-smi: ${said:-nothing}"
base64|    [ "$code" != 124 ] || why='nvidia-smi hangs'
base64|    [ "$code" = 0 ] || return 1
base64|    shown=$(grep -c '^GPU ' "$work/said")
base64|    why="nvidia-smi shows $shown of $cards GPUs"
base64|    [ "$shown" -ge "$cards" ]
base64|}
base64|# $1 seconds
base64|answers_within() {
base64|    began=$(now)
base64|    until answers; do
base64|        [ $(($(now) - began)) -lt "$1" ] || return 1
base64|        sleep 2
base64|    done
base64|}
base64|
base64|# $1: why
base64|refuse() {
base64|    printf '%s\t%s\t%s\t%s\t%s\n' "$to" 'open distribution' "$(date -u '+%F %T UTC')" "$from" "$1" >/var/lib/llamaherd/driver-refused.new &&
base64|        mv -f /var/lib/llamaherd/driver-refused.new /var/lib/llamaherd/driver-refused
base64|    echo "driver $to did not come up: $1"
base64|    sync
base64|}
base64|
base64|# What is on disk becomes what it was. What was written for the new driver goes first, so that nothing pins that.
base64|bring_back() {
base64|    date -u "+== %F %T back to driver $from" >>"$log"
base64|    for path in /etc/apt/preferences.d/00-llamaherd-nvidia-kept /etc/apt/preferences.d/00-llamaherd-nvidia-wanted /etc/apt/apt.conf.d/52llamaherd-nvidia; do
base64|        rm -f "$path"
base64|        [ ! -e "$before/files/${path##*/}" ] || cp -p "$before/files/${path##*/}" "$path" || return 1
base64|    done
base64|    dpkg --configure -a >>"$log" 2>&1
base64|    set -- "$before"/debs/*.deb
base64|    while read -r name; do
base64|        ! dpkg-query -W "$name" >/dev/null 2>&1 || set -- "$@" "$name-"
base64|    done <"$before/new"
base64|    # What is named is what comes: preferences of the new driver's packages do not count, and nothing is fetched.
base64|    apt-get -q -y -o Dir::Etc::preferencesparts=/dev/null -o Dir::Etc::preferences=/dev/null -o DPkg::Lock::Timeout=600 \
base64|        -o Acquire::Retries=0 -o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10 \
base64|        -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
base64|        install --no-install-recommends --allow-downgrades "$@" >>"$log" 2>&1 || return 1
base64|    dpkg-query -W -f '${Package} ${db:Status-Status}\n' 'nvidia-driver-pinning-*' 2>/dev/null |
base64|        sed -n 's/ config-files$//p' | xargs -r dpkg --purge >>"$log" 2>&1
base64|    kernel=$(readlink -f /boot/vmlinuz 2>/dev/null || readlink -f /vmlinuz 2>/dev/null)
base64|    [ -f "$kernel" ] || kernel=$(ls /boot/vmlinuz-* 2>/dev/null | sort -V | tail -n 1)
base64|    kernel=${kernel##*/vmlinuz-}
base64|    [ "$(modinfo -k "$kernel" -F version nvidia 2>/dev/null)" = "$from" ] || dkms autoinstall -k "$kernel" >>"$log" 2>&1
base64|    [ "$(modinfo -k "$kernel" -F version nvidia 2>/dev/null)" = "$from" ] || return 1
base64|    systemctl daemon-reload
base64|    [ "$(systemctl is-enabled nvidia-persistenced.service 2>/dev/null)" != disabled ] ||
base64|        systemctl -q enable nvidia-persistenced.service
base64|}
base64|
base64|if answers_within 60; then
base64|    rm -f /var/lib/llamaherd/driver-refused
base64|    disarm
base64|    exit 0
base64|fi
base64|# Where the power goes while packages are brought back, the next boot goes on; not for ever.
base64|echo again >>"$before/tries"
base64|if [ "$(grep -c . "$before/tries")" -gt 3 ] || ! bring_back; then
base64|    refuse "$why; driver $from could not be brought back, $log on the host says why"
base64|    disarm
base64|    exit 1
base64|fi
base64|refuse "$why"
base64|rm -f /var/lib/llamaherd/driver-reboot
base64|# The mark is gone after the reboot; until then nobody takes this for its end.
base64|mkdir -p /run/llamaherd
base64|: >/run/llamaherd/reboot
base64|disarm
base64|systemctl --no-block reboot
base64|sleep 300
base64|exit 1
END
put_file /etc/systemd/system/llamaherd-driver-undo.service /etc/systemd/system 0644 root <<'END'
base64|<<< driver_undo.service: # Written by llamaherd for the next boot alone, which removes it.
base64|>>> WantedBy=multi-user.target
END

    ) || exit 1
    systemctl daemon-reload
    systemctl -q enable llamaherd-driver-undo.service || exit 1
    echo "driver $works is kept ($((size >> 20)) MiB): it comes back by itself where $to does not answer after the next boot"
else
    cd /
    disarm
    echo "driver $works cannot be kept, so that nothing brings it back by itself where $to does not come up: $why"
fi
rm -f /var/lib/llamaherd/driver-refused

<<< step_driver.sh: # What files are written with is not what packages are installed with.
>>> base64|# The other source of drivers: two are never mixed.
base64|<<< driver_wanted_distribution.pref: Package: nvidia-driver* nvidia-open* nvidia-headless* nvidia-dkms* nvidia-kernel* nvidia-firmware* nvidia-utils* nvidia-compute-utils* nvidia-smi nvidia-persistenced nvidia-modprobe nvidia-settings nvidia-xconfig nvidia-alternative nvidia-legacy-check nvidia-suspend-common nvidia-egl* nvidia-vulkan* nvidia-opencl* nvidia-vdpau* nvidia-cuda-mps nvidia-libopencl1 libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1 libnvidia-[!c]* libnvidia-cfg1* libnvidia-compute* libnvidia-common* libnvidia-compiler* libgl1-nvidia* libglx-nvidia* libegl-nvidia* libgles-nvidia* libxnvctrl* firmware-nvidia-gsp* firmware-nvidia-graphics xserver-xorg-video-nvidia* linux-modules-nvidia-* linux-objects-nvidia-* linux-signatures-nvidia-*
base64|>>> Pin-Priority: 1001
END
<<< step_driver.sh: put_file /etc/apt/apt.conf.d/52llamaherd-nvidia /etc/apt/apt.conf.d 0644 root <<'END'
>>> base64|    "cuda-drivers";
base64|<<< driver_held_distribution.conf:     "linux-modules-nvidia-";
base64|>>>     "linux-modules-";
END
<<< step_driver.sh: put_file /etc/modules-load.d/llamaherd-nvidia.conf /etc/modules-load.d 0644 root <<'END'
>>> ) || exit 1
rm -f /etc/apt/preferences.d/00-llamaherd-nvidia-kept
<<< step_driver.sh: install() {
>>> sed -i "s/@VERSION@/$version/" /etc/apt/preferences.d/00-llamaherd-nvidia-kept
<<< step_driver.sh: kernel=$(next_kernel)
>>> disabled | masked) systemctl -q unmask nvidia-persistenced.service; systemctl -q enable nvidia-persistenced.service || exit 1 ;;
# What the kernel has already needs no boot that judges it.
[ "$(cat /sys/module/nvidia/version 2>/dev/null)" != "$version" ] || disarm
echo "driver $version is installed"
