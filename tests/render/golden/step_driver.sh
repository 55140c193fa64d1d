# Brings NVIDIA's driver: what would be done is worked out and judged first, with our preferences beside the host's own,
# so that a host which cannot have it stays as it was. What an earlier run left half-way is set right by the same way.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 "NVIDIA's driver" || exit 1
mkdir -p /var/log/llamaherd /run/llamaherd
log=/var/log/llamaherd/apt.log
date -u +'== %F %T driver 580' >>"$log"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# Who holds a lock of apt or dpkg, name and id of the process: by the kernel's own list, since fuser may not be installed.
holder() {
    for lock in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
        [ -f "$lock" ] || continue
        pid=$(awk -v inode="$(stat -c %i "$lock")" '{n = split($6, a, ":"); if (a[n] == inode && $5 > 0) {print $5; exit}}' /proc/locks)
        [ -n "$pid" ] && [ -r "/proc/$pid/comm" ] && echo "$(cat "/proc/$pid/comm") (process $pid)" && return
    done
}
fail() {
    printf '%s\n' "$@" >&2
    exit 1
}
version_of() { dpkg-query -W -f '${Version}' "$1" 2>/dev/null | sed 's/^[0-9]*://; s/-.*//'; }
next_kernel() {
    next=$(readlink -f /boot/vmlinuz 2>/dev/null || readlink -f /vmlinuz 2>/dev/null)
    [ -f "$next" ] || next=$(ls /boot/vmlinuz-* 2>/dev/null | sort -V | tail -n 1)
    next=${next##*/vmlinuz-}
    echo "${next:-$(uname -r)}"
}

for _ in $(seq 120); do
    said=$({ dpkg --configure -a && apt-get -q -o DPkg::Lock::Timeout=600 update; } 2>&1) && break
    case $said in *'Could not get lock'* | *'locked by another'* | *'is held by process'*) sleep 5 ;; *) break ;; esac
done
printf '%s\n' "$said" >>"$log"
case $said in *'Could not get lock'* | *'locked by another'* | *'is held by process'*)
    held=$(holder)
    [ -z "$held" ] || fail "apt is held by $held for more than ten minutes" "  help: let it end, or end it, and run again"
    ;;
esac

# As apt will see it.
mkdir "$work/preferences"
cp /etc/apt/preferences.d/* "$work/preferences/" 2>/dev/null
base64 -d >"$work/preferences/00-llamaherd-nvidia-wanted" <<'END'
base64|<<< driver_wanted.pref: # Written by llamaherd for rig `duo`: change the inventory, not this file.
base64|>>> Pin-Priority: 1001
END
apt() {
    what=$1
    shift
    "apt-$what" -q -o Dir::Etc::preferencesparts="$work/preferences" -o DPkg::Lock::Timeout=600 "$@"
}
# All at once: apt takes seconds to match preferences with all packages.
set -- libnvidia-compute-580 nvidia-compute-utils-580 nvidia-persistenced nvidia-driver-pinning-580 libcuda1 libnvidia-compute-570
for kernel in 6.8.0-90-generic; do set -- "$@" "linux-headers-$kernel"; done
apt cache policy "$@" 2>/dev/null |
    awk '/^[^ ]/ {name = $1} /^  Candidate: / {sub(/^[0-9]*:/, "", $2); print name $2}' >"$work/candidates"
candidate() { sed -n "s/^$1://p" "$work/candidates"; }

case $(candidate libnvidia-compute-580) in
580.* | 580-* | 580) ;;
*)
    has=$(apt-cache -q madison libnvidia-compute-580 2>/dev/null | awk '{print $3}' | sed 's/^[0-9]*://; s/-.*//' | sort -uV | tail -n 8 | paste -sd ' ')
    fail 'NVIDIA'"'"'s repository has no driver 580 (libnvidia-compute-580)' "  help: it has ${has:-none}; declare one of these, or another \`from\`"
    ;;
esac
set -- libnvidia-compute-580 nvidia-dkms-580-open dkms nvidia-utils-580 linux-headers-generic
for each in nvidia-compute-utils-580 nvidia-persistenced; do
    case $(candidate "$each") in 580.*) set -- "$@" "$each" ;; esac
done
for kernel in 6.8.0-90-generic; do
    case $(candidate "linux-headers-$kernel") in
    '' | '(none)')
        # A module of another version does not help: that goes with its driver.
        has=$(modinfo -k "$kernel" -F version nvidia 2>/dev/null)
        [ "$kernel" != "$(next_kernel)" ] || [ "${has:-none}" = "$(candidate libnvidia-compute-580 | sed 's/-.*//')" ] || fail \
            "there are no headers of kernel $kernel, which the next boot starts: apt has no linux-headers-$kernel" \
            "  help: reboot into a kernel that the distribution still has, and run this again"
        ;;
    *) set -- "$@" "linux-headers-$kernel" ;;
    esac
done
# What is of another branch goes with it to the new one, if that has it by the same name; else it goes.
for each in libcuda1 libnvidia-compute-570; do
    case " $* " in *" $each "*) continue ;; esac
    case $(candidate "$each") in
    580.* | 580-* | 580) set -- "$@" "$each" ;;
    *) case $each in nvidia-modprobe | nvidia-settings | nvidia-xconfig) ;; *) set -- "$@" "$each-" ;; esac ;;
    esac
done
for each in nvidia-driver-pinning-580; do
    case $(candidate "$each") in '' | '(none)') ;; *) pinning=$each && break ;; esac
done

apt get -s install --no-install-recommends --allow-downgrades ${pinning:+"$pinning"} "$@" >"$work/said" 2>&1 || {
    cat "$work/said" >>"$log"
    grep -E '^ |^E:' "$work/said" | tail -n 12 >&2
    fail "apt finds no way to driver 580; nothing was changed"
}
while read -r what name rest; do
    case $what in Remv | Inst | Purg) ;; *) continue ;; esac
    if [ "$what" = Inst ]; then
        case $name in cuda | cuda-[0-9]* | cuda-drivers* | cuda-runtime-* | cuda-demo-suite-* | cuda-compat-*) echo "would bring $name, which brings a driver of its own choice" ;; esac
        # The version that comes stands in parentheses.
        version=$(printf '%s' "$rest" | sed 's/^[^(]*(\([^ ]*\).*/\1/; s/^[0-9]*://; s/-.*//')
        case $name in nvidia-modprobe | nvidia-settings | nvidia-xconfig) continue ;; nvidia-driver* | nvidia-open* | nvidia-headless* | nvidia-dkms* | nvidia-kernel* | nvidia-firmware* | nvidia-utils* | nvidia-compute-utils* | nvidia-smi | nvidia-persistenced | nvidia-modprobe | nvidia-settings | nvidia-xconfig | nvidia-alternative | nvidia-legacy-check | nvidia-suspend-common | nvidia-egl* | nvidia-vulkan* | nvidia-opencl* | nvidia-vdpau* | nvidia-cuda-mps | nvidia-libopencl1 | libcuda1 | libcudadebugger1 | libnvcuvid1 | libnvoptix1 | libnvidia-[!c]* | libnvidia-cfg1* | libnvidia-compute* | libnvidia-common* | libnvidia-compiler* | libgl1-nvidia* | libglx-nvidia* | libegl-nvidia* | libgles-nvidia* | libxnvctrl* | firmware-nvidia-gsp* | firmware-nvidia-graphics | xserver-xorg-video-nvidia* | linux-modules-nvidia-* | linux-objects-nvidia-* | linux-signatures-nvidia-* | cuda-drivers*) ;; *) continue ;; esac
        case $version in 580.*) ;; [0-9][0-9][0-9].[0-9]*) echo "would bring $name of driver $version" ;; esac
        continue
    fi
    case $name in
    nvidia-driver | nvidia-driver-[0-9]* | nvidia-driver-libs* | nvidia-driver-bin | nvidia-driver-open | nvidia-open | nvidia-settings | nvidia-egl* | nvidia-vulkan* | nvidia-vdpau* | libnvidia-gl* | libgl1-nvidia* | libglx-nvidia* | libegl-nvidia* | libgles-nvidia* | xserver-xorg-video-nvidia*) echo "would remove $name, which a desktop may stand on" ;;
    nvidia-driver* | nvidia-open* | nvidia-headless* | nvidia-dkms* | nvidia-kernel* | nvidia-firmware* | nvidia-utils* | nvidia-compute-utils* | nvidia-smi | nvidia-persistenced | nvidia-modprobe | nvidia-settings | nvidia-xconfig | nvidia-alternative | nvidia-legacy-check | nvidia-suspend-common | nvidia-egl* | nvidia-vulkan* | nvidia-opencl* | nvidia-vdpau* | nvidia-cuda-mps | nvidia-libopencl1 | libcuda1 | libcudadebugger1 | libnvcuvid1 | libnvoptix1 | libnvidia-[!c]* | libnvidia-cfg1* | libnvidia-compute* | libnvidia-common* | libnvidia-compiler* | libgl1-nvidia* | libglx-nvidia* | libegl-nvidia* | libgles-nvidia* | libxnvctrl* | firmware-nvidia-gsp* | firmware-nvidia-graphics | xserver-xorg-video-nvidia* | linux-modules-nvidia-* | linux-objects-nvidia-* | linux-signatures-nvidia-* | cuda-drivers*) ;;
    *) echo "would remove $name, which is no part of a driver" ;;
    esac
done <"$work/said" >"$work/problems"
[ -s "$work/problems" ] && {
    sed 's/^/  /' "$work/problems" >&2
    fail "apt's way to driver 580 does more than that; nothing was changed" \
        "  help: remove what is named yourself, or bring it to the declared branch, then run this again"
}

# What files are written with is not what packages are installed with.
(
# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
# $1 the path, $2 what the system says; the way out is by the reason.
cannot_write() {
    echo "cannot write $1: ${2##*: }" >&2
    near=$1
    until [ -d "$near" ]; do near=${near%/*} && near=${near:-/}; done
    on=$(df -P "$near" | awk 'NR == 2 {print $6}')
    case $2 in
    *'No space'*) echo "  help: make room on $on (\`df -h $on\`; \`df -i $on\` where it has room, but no more files), then run again" >&2 ;;
    *Read-only*) echo "  help: make $on writable (\`findmnt $on\` says how it is mounted; a disk with errors is mounted so, see \`dmesg\`), then run again" >&2 ;;
    *'not permitted'*) echo "  help: \`lsattr -d $near $1\` says whether it may not be changed (\`chattr -i\`), then run again" >&2 ;;
    *) echo "  help: see what is at $near with \`ls -la\`, then run again" >&2 ;;
    esac
    rm -f "$1.llamaherd-new" 2>/dev/null
    exit 1
}
# $1 path, $2 folder, $3 mode, $4 owner; its content comes on stdin.
put_file() {
    why=$({
        { [ -d "$2" ] || (umask 022 && mkdir -p "$2"); } &&
            base64 -d >"$1.llamaherd-new" &&
            chown "$4" "$1.llamaherd-new" &&
            chmod "$3" "$1.llamaherd-new" &&
            mv -fT "$1.llamaherd-new" "$1"
    } 2>&1) || cannot_write "$1" "$why"
}
put_file /etc/apt/preferences.d/00-llamaherd-nvidia-wanted /etc/apt/preferences.d 0644 root <<'END'
base64|<<< driver_wanted.pref: # Written by llamaherd for rig `duo`: change the inventory, not this file.
base64|>>> Pin-Priority: 1001
END
put_file /etc/apt/apt.conf.d/52llamaherd-nvidia /etc/apt/apt.conf.d 0644 root <<'END'
base64|<<< driver_held_distribution.conf: // Written by llamaherd for rig `duo`: change the inventory, not this file.
base64|>>>     "cuda-drivers";
base64|};
END
put_file /etc/modules-load.d/llamaherd-nvidia.conf /etc/modules-load.d 0644 root <<'END'
base64|# Written by llamaherd for rig `duo`: change the inventory, not this file.
base64|nvidia
base64|nvidia_uvm
END

) || exit 1
install() {
    apt-get -q -y -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
        install --no-install-recommends --allow-downgrades "$@" >>"$log" 2>&1 || {
        tail -n 12 "$log"
        tail -n 8 /var/lib/dkms/nvidia*/*/build/make.log 2>/dev/null
        held=$(holder)
        fail "apt could not install: $*. The whole log is $log on the host." ${held:+"  help: $held holds apt's locks; let it end, or end it, and run again"}
    }
}
if [ -n "${pinning-}" ]; then
    install "$pinning"
fi
install "$@"
# The preferences of a pinning package that went are configuration, which stays until it is purged.
dpkg-query -W -f '${Package} ${db:Status-Status}\n' 'nvidia-driver-pinning-*' 2>/dev/null |
    sed -n 's/ config-files$//p' | xargs -r dpkg --purge >>"$log" 2>&1

version=$(version_of libnvidia-compute-580)
(
# Writes files beside their places, then renames each: no reader ever sees half a file.
umask 077
# $1 the path, $2 what the system says; the way out is by the reason.
cannot_write() {
    echo "cannot write $1: ${2##*: }" >&2
    near=$1
    until [ -d "$near" ]; do near=${near%/*} && near=${near:-/}; done
    on=$(df -P "$near" | awk 'NR == 2 {print $6}')
    case $2 in
    *'No space'*) echo "  help: make room on $on (\`df -h $on\`; \`df -i $on\` where it has room, but no more files), then run again" >&2 ;;
    *Read-only*) echo "  help: make $on writable (\`findmnt $on\` says how it is mounted; a disk with errors is mounted so, see \`dmesg\`), then run again" >&2 ;;
    *'not permitted'*) echo "  help: \`lsattr -d $near $1\` says whether it may not be changed (\`chattr -i\`), then run again" >&2 ;;
    *) echo "  help: see what is at $near with \`ls -la\`, then run again" >&2 ;;
    esac
    rm -f "$1.llamaherd-new" 2>/dev/null
    exit 1
}
# $1 path, $2 folder, $3 mode, $4 owner; its content comes on stdin.
put_file() {
    why=$({
        { [ -d "$2" ] || (umask 022 && mkdir -p "$2"); } &&
            base64 -d >"$1.llamaherd-new" &&
            chown "$4" "$1.llamaherd-new" &&
            chmod "$3" "$1.llamaherd-new" &&
            mv -fT "$1.llamaherd-new" "$1"
    } 2>&1) || cannot_write "$1" "$why"
}
put_file /etc/apt/preferences.d/00-llamaherd-nvidia-kept /etc/apt/preferences.d 0644 root <<'END'
base64|# Written by llamaherd when it installed the driver. To move to another version, declare it.
base64|Package: src:*nvidia*:any libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1 libxnvctrl0
base64|Pin: version @VERSION@*
base64|Pin-Priority: 1002
END

) || exit 1
sed -i "s/@VERSION@/$version/" /etc/apt/preferences.d/00-llamaherd-nvidia-kept
for kernel in $(printf '%s\n' "$(uname -r)" "$(next_kernel)" | sort -u); do
    [ "$(modinfo -k "$kernel" -F version nvidia 2>/dev/null)" = "$version" ] || [ ! -d "/lib/modules/$kernel/build/" ] ||
        dkms autoinstall -k "$kernel" >>"$log" 2>&1
done
kernel=$(next_kernel)
found=$(modinfo -k "$kernel" -F version nvidia 2>/dev/null)
[ "$found" = "$version" ] || {
    tail -n 8 /var/lib/dkms/nvidia*/*/build/make.log 2>/dev/null
    fail "driver $version is installed, and kernel $kernel, which the next boot starts, has ${found:-no module of it}" \
        "  help: \`dkms status\` and $log on the host say why; without headers of that kernel none can be compiled"
}
command -v nvidia-smi >/dev/null || fail "driver $version is installed, and brought no nvidia-smi"
systemctl daemon-reload
systemctl cat nvidia-persistenced.service >/dev/null 2>&1 || fail "driver $version is installed, and brought no nvidia-persistenced"
case $(systemctl is-enabled nvidia-persistenced.service 2>/dev/null) in
masked-runtime) systemctl -q unmask --runtime nvidia-persistenced.service; systemctl -q enable nvidia-persistenced.service || exit 1 ;;
disabled | masked) systemctl -q unmask nvidia-persistenced.service; systemctl -q enable nvidia-persistenced.service || exit 1 ;;
esac
echo "driver $version is installed"
