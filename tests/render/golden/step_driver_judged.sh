# Brings NVIDIA's driver: what would be done is worked out and judged first, with our preferences beside the host's own,
# so that a host which cannot have it stays as it was. What an earlier run left half-way is set right by the same way.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
# Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
locks=/run/llamaherd/locks
# $1 file descriptor, $2 name; opens the lock, and does not wait for it.
open_lock() {
    (umask 022 && mkdir -p "${locks%/*}") && mkdir -m 0700 "$locks" 2>/dev/null
    if [ -L "$locks" ] || [ "$(stat -c '%F %u %a' "$locks")" != "directory $(id -u) 700" ]; then
        echo "$locks is no folder of root's alone, as locks need one (mode 0700): see who made it, remove it, and run again" >&2
        return 1
    fi
    (umask 077 && : >>"$locks/$2") && eval "exec $1<>\"\$locks/$2\""
}
# $3 seconds to wait, $4 what it is held for: told to whoever waits for us meanwhile.
hold() {
    open_lock "$1" "$2" || return 1
    if ! flock -n "$1"; then
        by=$(cat "$locks/$2")
        echo "waiting for another run, ${by:-which has just begun}, for up to $3 s"
        if ! flock -w "$3" "$1"; then
            by=$(cat "$locks/$2")
            echo "after $3 s another run, ${by:-which does not say what it is}, still holds $locks/$2; see with \`ps\` whether it works or hangs, wait or end it, and run again" >&2
            return 1
        fi
    fi
    echo "process $$ since $(date +%T): $4" >"$locks/$2"
}
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
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBkdW9gOiBjaGFuZ2UgdGhlIGludmVudG9y
eSwgbm90IHRoaXMgZmlsZS4KIyBNZXRhcGFja2FnZXMgdGhhdCBicmluZyBhIGRyaXZlciBvZiB0
aGVpciBvd24gY2hvaWNlLgpQYWNrYWdlOiBjdWRhIGN1ZGEtWzAtOV0qIGN1ZGEtZHJpdmVycyog
Y3VkYS1ydW50aW1lLSogY3VkYS1kZW1vLXN1aXRlLSogY3VkYS1jb21wYXQtKgpQaW46IHZlcnNp
b24gKgpQaW4tUHJpb3JpdHk6IC0xCgojIFRoZSBvdGhlciBzb3VyY2Ugb2YgZHJpdmVyczogdHdv
IGFyZSBuZXZlciBtaXhlZC4KUGFja2FnZTogc3JjOm52aWRpYS1ncmFwaGljcy1kcml2ZXJzKiBz
cmM6bnZpZGlhLW9wZW4tZ3B1LWtlcm5lbC1tb2R1bGVzKiBzcmM6bGludXgtcmVzdHJpY3RlZC1t
b2R1bGVzKiBzcmM6bnZpZGlhLXBlcnNpc3RlbmNlZCBzcmM6bnZpZGlhLW1vZHByb2JlIHNyYzpu
dmlkaWEtc2V0dGluZ3Mgc3JjOm52aWRpYS14Y29uZmlnClBpbjogcmVsZWFzZSBvPVVidW50dQpQ
aW4tUHJpb3JpdHk6IC0xCgojIFdoYXQgaXMgZGVjbGFyZWQuClBhY2thZ2U6IHNyYzoqbnZpZGlh
KjphbnkgbGliY3VkYTEgbGliY3VkYWRlYnVnZ2VyMSBsaWJudmN1dmlkMSBsaWJudm9wdGl4MSBs
aWJ4bnZjdHJsMApQaW46IHZlcnNpb24gNTgwLioKUGluLVByaW9yaXR5OiAxMDAxCg==
END
rm -f "$work/preferences/00-llamaherd-nvidia-kept"
apt() {
    what=$1
    shift
    "apt-$what" -q -o Dir::Etc::preferencesparts="$work/preferences" -o DPkg::Lock::Timeout=600 "$@"
}
# All at once: apt takes seconds to match preferences with all packages.
set -- libnvidia-compute-580 nvidia-compute-utils-580 nvidia-persistenced nvidia-driver-pinning-580 libnvidia-compute-580 nvidia-dkms-580-open nvidia-utils-580
for kernel in ; do set -- "$@" "linux-headers-$kernel"; done
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
for kernel in ; do
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
for each in libnvidia-compute-580 nvidia-dkms-580-open nvidia-utils-580; do
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

# Keeps what it takes to go back without a network, before anything is changed, and has the next boot judge the new one.
# Nobody goes back any more, and what was kept for that is removed.
disarm() {
    systemctl -q disable llamaherd-driver-undo.service 2>/dev/null
    rm -f /etc/systemd/system/llamaherd-driver-undo.service
    rm -rf /var/lib/llamaherd/driver-before /var/lib/llamaherd/driver-before.new /run/llamaherd/driver-armed /var/lib/llamaherd/driver-reading
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
        nvidia-smi -L | grep -c '^GPU ' >cards && sync && cd / && mv "$before.new" "$before" && sync
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
put_file /opt/llamaherd/libexec/driver-undo /opt/llamaherd/libexec 0755 root <<'END'
IyEvYmluL3NoCiMgV3JpdHRlbiBieSBsbGFtYWhlcmQuIEp1ZGdlcyBhIGRyaXZlciBhdCB0aGUg
Zmlyc3QgYm9vdCB3aXRoIGl0OiB3aGVyZSBpdCBkb2VzIG5vdCBhbnN3ZXIsIHRoZSBvbmUgYmVm
b3JlIGNvbWVzIGJhY2ssCiMgZnJvbSB3aGF0IHdhcyBrZXB0LCBhbmQgdGhlIGhvc3QgaXMgYm9v
dGVkIG9uY2UgbW9yZS4gSXQgZG9lcyB0aGlzIG9uY2U6IHdoYXRldmVyIGNvbWVzIG9mIGl0LCBu
b3RoaW5nIGlzIGtlcHQgdGhlbi4KZXhwb3J0IERFQklBTl9GUk9OVEVORD1ub25pbnRlcmFjdGl2
ZSBMQ19BTEw9QwpQQVRIPSRQQVRIOi91c3Ivc2Jpbjovc2JpbgpiZWZvcmU9L3Zhci9saWIvbGxh
bWFoZXJkL2RyaXZlci1iZWZvcmUKWyAhIC1lIC9ydW4vbGxhbWFoZXJkL2RyaXZlci1hcm1lZCBd
IHx8IGV4aXQgMAojIExvY2tzIGxpZSBpbiBhIGZvbGRlciB0aGF0IGlzIHJvb3QncyBhbG9uZTog
ZWxzZXdoZXJlIGFueWJvZHkgY291bGQgaG9sZCBvbmUsIG9yIHB1dCBhIGxpbmsgaW4gaXRzIHBs
YWNlLgpsb2Nrcz0vcnVuL2xsYW1haGVyZC9sb2NrcwojICQxIGZpbGUgZGVzY3JpcHRvciwgJDIg
bmFtZTsgb3BlbnMgdGhlIGxvY2ssIGFuZCBkb2VzIG5vdCB3YWl0IGZvciBpdC4Kb3Blbl9sb2Nr
KCkgewogICAgKHVtYXNrIDAyMiAmJiBta2RpciAtcCAiJHtsb2NrcyUvKn0iKSAmJiBta2RpciAt
bSAwNzAwICIkbG9ja3MiIDI+L2Rldi9udWxsCiAgICBpZiBbIC1MICIkbG9ja3MiIF0gfHwgWyAi
JChzdGF0IC1jICclRiAldSAlYScgIiRsb2NrcyIpIiAhPSAiZGlyZWN0b3J5ICQoaWQgLXUpIDcw
MCIgXTsgdGhlbgogICAgICAgIGVjaG8gIiRsb2NrcyBpcyBubyBmb2xkZXIgb2Ygcm9vdCdzIGFs
b25lLCBhcyBsb2NrcyBuZWVkIG9uZSAobW9kZSAwNzAwKTogc2VlIHdobyBtYWRlIGl0LCByZW1v
dmUgaXQsIGFuZCBydW4gYWdhaW4iID4mMgogICAgICAgIHJldHVybiAxCiAgICBmaQogICAgKHVt
YXNrIDA3NyAmJiA6ID4+IiRsb2Nrcy8kMiIpICYmIGV2YWwgImV4ZWMgJDE8PlwiXCRsb2Nrcy8k
MlwiIgp9CiMgJDMgc2Vjb25kcyB0byB3YWl0LCAkNCB3aGF0IGl0IGlzIGhlbGQgZm9yOiB0b2xk
IHRvIHdob2V2ZXIgd2FpdHMgZm9yIHVzIG1lYW53aGlsZS4KaG9sZCgpIHsKICAgIG9wZW5fbG9j
ayAiJDEiICIkMiIgfHwgcmV0dXJuIDEKICAgIGlmICEgZmxvY2sgLW4gIiQxIjsgdGhlbgogICAg
ICAgIGJ5PSQoY2F0ICIkbG9ja3MvJDIiKQogICAgICAgIGVjaG8gIndhaXRpbmcgZm9yIGFub3Ro
ZXIgcnVuLCAke2J5Oi13aGljaCBoYXMganVzdCBiZWd1bn0sIGZvciB1cCB0byAkMyBzIgogICAg
ICAgIGlmICEgZmxvY2sgLXcgIiQzIiAiJDEiOyB0aGVuCiAgICAgICAgICAgIGJ5PSQoY2F0ICIk
bG9ja3MvJDIiKQogICAgICAgICAgICBlY2hvICJhZnRlciAkMyBzIGFub3RoZXIgcnVuLCAke2J5
Oi13aGljaCBkb2VzIG5vdCBzYXkgd2hhdCBpdCBpc30sIHN0aWxsIGhvbGRzICRsb2Nrcy8kMjsg
c2VlIHdpdGggXGBwc1xgIHdoZXRoZXIgaXQgd29ya3Mgb3IgaGFuZ3MsIHdhaXQgb3IgZW5kIGl0
LCBhbmQgcnVuIGFnYWluIiA+JjIKICAgICAgICAgICAgcmV0dXJuIDEKICAgICAgICBmaQogICAg
ZmkKICAgIGVjaG8gInByb2Nlc3MgJCQgc2luY2UgJChkYXRlICslVCk6ICQ0IiA+IiRsb2Nrcy8k
MiIKfQpob2xkIDggaG9zdCAzNjAwICdqdWRnaW5nIGEgZHJpdmVyJyB8fCBleGl0IDEKIyBOb2Jv
ZHkgZ29lcyBiYWNrIGFueSBtb3JlLCBhbmQgd2hhdCB3YXMga2VwdCBmb3IgdGhhdCBpcyByZW1v
dmVkLgpkaXNhcm0oKSB7CiAgICBzeXN0ZW1jdGwgLXEgZGlzYWJsZSBsbGFtYWhlcmQtZHJpdmVy
LXVuZG8uc2VydmljZSAyPi9kZXYvbnVsbAogICAgcm0gLWYgL2V0Yy9zeXN0ZW1kL3N5c3RlbS9s
bGFtYWhlcmQtZHJpdmVyLXVuZG8uc2VydmljZQogICAgcm0gLXJmIC92YXIvbGliL2xsYW1haGVy
ZC9kcml2ZXItYmVmb3JlIC92YXIvbGliL2xsYW1haGVyZC9kcml2ZXItYmVmb3JlLm5ldyAvcnVu
L2xsYW1haGVyZC9kcml2ZXItYXJtZWQgL3Zhci9saWIvbGxhbWFoZXJkL2RyaXZlci1yZWFkaW5n
Cn0KZnJvbT0kKGNhdCAiJGJlZm9yZS9mcm9tIikgdG89JChjYXQgIiRiZWZvcmUvdG8iKSBjYXJk
cz0kKGNhdCAiJGJlZm9yZS9jYXJkcyIpClsgIiRmcm9tIiBdICYmIFsgIiR0byIgXSAmJiBbICIk
Y2FyZHMiIF0gfHwgewogICAgZGlzYXJtCiAgICBleGl0IDEKfQpta2RpciAtcCAvdmFyL2xvZy9s
bGFtYWhlcmQKbG9nPS92YXIvbG9nL2xsYW1haGVyZC9hcHQubG9nCndvcms9JChta3RlbXAgLWQp
IHx8IGV4aXQgMQp0cmFwICdybSAtcmYgIiR3b3JrIicgRVhJVAojIFRoZSBjbG9jayBtYXkganVt
cCBhdCBib290OyB0aGlzIG9uZSBkb2VzIG5vdC4Kbm93KCkgeyBjdXQgLWQgLiAtZiAxIC9wcm9j
L3VwdGltZTsgfQoKIyBXaGV0aGVyIGFzIG1hbnkgR1BVcyBhbnN3ZXIgYXMgZGlkIGJlZm9yZSwg
ZWxzZSBgd2h5YC4gV2hhdCBoYW5ncyBpbiB0aGUgZHJpdmVyIGNhbm5vdCBldmVuIGJlIGtpbGxl
ZDogaXQgaXMgbGVmdAojIGJlaGluZC4KYW5zd2VycygpIHsKICAgIHJtIC1mICIkd29yay9jb2Rl
IgogICAgewogICAgICAgIHRpbWVvdXQgLWsgNSAyMCBtb2Rwcm9iZSBudmlkaWEgJiYgdGltZW91
dCAtayA1IDIwIG1vZHByb2JlIG52aWRpYV91dm0KICAgICAgICB0aW1lb3V0IC1rIDUgMzAgbnZp
ZGlhLXNtaSAtTCA+IiR3b3JrL3NhaWQiIDI+JjEKICAgICAgICBlY2hvICQ/ID4iJHdvcmsvY29k
ZS5uZXciICYmIG12ICIkd29yay9jb2RlLm5ldyIgIiR3b3JrL2NvZGUiCiAgICB9ID4vZGV2L251
bGwgMj4mMSA4PiYtICYKICAgIGFza2VkPSQobm93KQogICAgdW50aWwgWyAtZSAiJHdvcmsvY29k
ZSIgXTsgZG8KICAgICAgICBbICQoKCQobm93KSAtIGFza2VkKSkgLWx0IDYwIF0gfHwgewogICAg
ICAgICAgICB3aHk9J3RoZSBkcml2ZXIgaGFuZ3MnCiAgICAgICAgICAgIHJldHVybiAxCiAgICAg
ICAgfQogICAgICAgIHNsZWVwIDAuMgogICAgZG9uZQogICAgY29kZT0kKGNhdCAiJHdvcmsvY29k
ZSIpCiAgICBzYWlkPSQoZ3JlcCAuICIkd29yay9zYWlkIiB8IGhlYWQgLW4gMSB8IHRyIC1jICdb
OnByaW50Ol1cbicgJyAnIHwgY3V0IC1jIC0yMDApCiAgICB3aHk9Im52aWRpYS1zbWk6ICR7c2Fp
ZDotbm90aGluZ30iCiAgICBbICIkY29kZSIgIT0gMTI0IF0gfHwgd2h5PSdudmlkaWEtc21pIGhh
bmdzJwogICAgWyAiJGNvZGUiID0gMCBdIHx8IHJldHVybiAxCiAgICBzaG93bj0kKGdyZXAgLWMg
J15HUFUgJyAiJHdvcmsvc2FpZCIpCiAgICB3aHk9Im52aWRpYS1zbWkgc2hvd3MgJHNob3duIG9m
ICRjYXJkcyBHUFVzIgogICAgWyAiJHNob3duIiAtZ2UgIiRjYXJkcyIgXQp9CiMgJDEgc2Vjb25k
cwphbnN3ZXJzX3dpdGhpbigpIHsKICAgIGJlZ2FuPSQobm93KQogICAgdW50aWwgYW5zd2Vyczsg
ZG8KICAgICAgICBbICQoKCQobm93KSAtIGJlZ2FuKSkgLWx0ICIkMSIgXSB8fCByZXR1cm4gMQog
ICAgICAgIHNsZWVwIDIKICAgIGRvbmUKfQoKIyAkMTogd2h5CnJlZnVzZSgpIHsKICAgIHByaW50
ZiAnJXNcdCVzXHQlc1x0JXNcdCVzXHQlc1xuJyAiJHRvIiAnb3BlbiBudmlkaWEnICIkKGRhdGUg
LXUgJyslRiAlVCBVVEMnKSIgIiRmcm9tIiAiJDEiICIke3Nsb3dlcjorc2xvd2VyfSIgPi92YXIv
bGliL2xsYW1haGVyZC9kcml2ZXItcmVmdXNlZC5uZXcgJiYKICAgICAgICBtdiAtZiAvdmFyL2xp
Yi9sbGFtYWhlcmQvZHJpdmVyLXJlZnVzZWQubmV3IC92YXIvbGliL2xsYW1haGVyZC9kcml2ZXIt
cmVmdXNlZAogICAgZWNobyAiZHJpdmVyICR0byBkaWQgbm90IGNvbWUgdXA6ICQxIgogICAgc3lu
Ywp9CgojIFdoYXQgaXMgb24gZGlzayBiZWNvbWVzIHdoYXQgaXQgd2FzLiBXaGF0IHdhcyB3cml0
dGVuIGZvciB0aGUgbmV3IGRyaXZlciBnb2VzIGZpcnN0LCBzbyB0aGF0IG5vdGhpbmcgcGlucyB0
aGF0LgpicmluZ19iYWNrKCkgewogICAgZGF0ZSAtdSAiKz09ICVGICVUIGJhY2sgdG8gZHJpdmVy
ICRmcm9tIiA+PiIkbG9nIgogICAgZm9yIHBhdGggaW4gL2V0Yy9hcHQvcHJlZmVyZW5jZXMuZC8w
MC1sbGFtYWhlcmQtbnZpZGlhLWtlcHQgL2V0Yy9hcHQvcHJlZmVyZW5jZXMuZC8wMC1sbGFtYWhl
cmQtbnZpZGlhLXdhbnRlZCAvZXRjL2FwdC9hcHQuY29uZi5kLzUybGxhbWFoZXJkLW52aWRpYTsg
ZG8KICAgICAgICBybSAtZiAiJHBhdGgiCiAgICAgICAgWyAhIC1lICIkYmVmb3JlL2ZpbGVzLyR7
cGF0aCMjKi99IiBdIHx8IGNwIC1wICIkYmVmb3JlL2ZpbGVzLyR7cGF0aCMjKi99IiAiJHBhdGgi
IHx8IHJldHVybiAxCiAgICBkb25lCiAgICBkcGtnIC0tY29uZmlndXJlIC1hID4+IiRsb2ciIDI+
JjEKICAgIHNldCAtLSAiJGJlZm9yZSIvZGVicy8qLmRlYgogICAgd2hpbGUgcmVhZCAtciBuYW1l
OyBkbwogICAgICAgICEgZHBrZy1xdWVyeSAtVyAiJG5hbWUiID4vZGV2L251bGwgMj4mMSB8fCBz
ZXQgLS0gIiRAIiAiJG5hbWUtIgogICAgZG9uZSA8IiRiZWZvcmUvbmV3IgogICAgIyBXaGF0IGlz
IG5hbWVkIGlzIHdoYXQgY29tZXM6IHByZWZlcmVuY2VzIG9mIHRoZSBuZXcgZHJpdmVyJ3MgcGFj
a2FnZXMgZG8gbm90IGNvdW50LCBhbmQgbm90aGluZyBpcyBmZXRjaGVkLgogICAgYXB0LWdldCAt
cSAteSAtbyBEaXI6OkV0Yzo6cHJlZmVyZW5jZXNwYXJ0cz0vZGV2L251bGwgLW8gRGlyOjpFdGM6
OnByZWZlcmVuY2VzPS9kZXYvbnVsbCAtbyBEUGtnOjpMb2NrOjpUaW1lb3V0PTYwMCBcCiAgICAg
ICAgLW8gQWNxdWlyZTo6UmV0cmllcz0wIC1vIEFjcXVpcmU6Omh0dHA6OlRpbWVvdXQ9MTAgLW8g
QWNxdWlyZTo6aHR0cHM6OlRpbWVvdXQ9MTAgXAogICAgICAgIC1vIERwa2c6Ok9wdGlvbnM6Oj0t
LWZvcmNlLWNvbmZkZWYgLW8gRHBrZzo6T3B0aW9uczo6PS0tZm9yY2UtY29uZm9sZCBcCiAgICAg
ICAgaW5zdGFsbCAtLW5vLWluc3RhbGwtcmVjb21tZW5kcyAtLWFsbG93LWRvd25ncmFkZXMgIiRA
IiA+PiIkbG9nIiAyPiYxIHx8IHJldHVybiAxCiAgICBkcGtnLXF1ZXJ5IC1XIC1mICcke1BhY2th
Z2V9ICR7ZGI6U3RhdHVzLVN0YXR1c31cbicgJ252aWRpYS1kcml2ZXItcGlubmluZy0qJyAyPi9k
ZXYvbnVsbCB8CiAgICAgICAgc2VkIC1uICdzLyBjb25maWctZmlsZXMkLy9wJyB8IHhhcmdzIC1y
IGRwa2cgLS1wdXJnZSA+PiIkbG9nIiAyPiYxCiAgICBrZXJuZWw9JChyZWFkbGluayAtZiAvYm9v
dC92bWxpbnV6IDI+L2Rldi9udWxsIHx8IHJlYWRsaW5rIC1mIC92bWxpbnV6IDI+L2Rldi9udWxs
KQogICAgWyAtZiAiJGtlcm5lbCIgXSB8fCBrZXJuZWw9JChscyAvYm9vdC92bWxpbnV6LSogMj4v
ZGV2L251bGwgfCBzb3J0IC1WIHwgdGFpbCAtbiAxKQogICAga2VybmVsPSR7a2VybmVsIyMqL3Zt
bGludXotfQogICAgWyAiJChtb2RpbmZvIC1rICIka2VybmVsIiAtRiB2ZXJzaW9uIG52aWRpYSAy
Pi9kZXYvbnVsbCkiID0gIiRmcm9tIiBdIHx8IGRrbXMgYXV0b2luc3RhbGwgLWsgIiRrZXJuZWwi
ID4+IiRsb2ciIDI+JjEKICAgIFsgIiQobW9kaW5mbyAtayAiJGtlcm5lbCIgLUYgdmVyc2lvbiBu
dmlkaWEgMj4vZGV2L251bGwpIiA9ICIkZnJvbSIgXSB8fCByZXR1cm4gMQogICAgc3lzdGVtY3Rs
IGRhZW1vbi1yZWxvYWQKICAgIFsgIiQoc3lzdGVtY3RsIGlzLWVuYWJsZWQgbnZpZGlhLXBlcnNp
c3RlbmNlZC5zZXJ2aWNlIDI+L2Rldi9udWxsKSIgIT0gZGlzYWJsZWQgXSB8fAogICAgICAgIHN5
c3RlbWN0bCAtcSBlbmFibGUgbnZpZGlhLXBlcnNpc3RlbmNlZC5zZXJ2aWNlCn0KCiMgU2VydmVy
cyB3ZXJlIG1lYXN1cmVkIHNpbmNlLCBhbmQgYXJlIHNsb3dlciBieSBpdDogdGhlbiBpdCBnb2Vz
LCB0aG91Z2ggaXQgYW5zd2Vycy4Kc2xvd2VyPSQoY2F0ICIkYmVmb3JlL3Nsb3dlciIgMj4vZGV2
L251bGwpCndoeT0kc2xvd2VyCmlmIFsgISAiJHNsb3dlciIgXSAmJiBhbnN3ZXJzX3dpdGhpbiA2
MDsgdGhlbgogICAgcm0gLWYgL3Zhci9saWIvbGxhbWFoZXJkL2RyaXZlci1yZWZ1c2VkCiAgICBp
ZiBbIC1zIC92YXIvbGliL2xsYW1haGVyZC9kcml2ZXItcmVhZGluZyBdOyB0aGVuCiAgICAgICAg
IyBJdCBpcyBrZXB0IHVudGlsIHdoYXQgaXQgZG9lcyB0byB0aGVtIGlzIGtub3duLgogICAgICAg
IDogPiIkYmVmb3JlL2Fuc3dlcmVkIiAmJiBzeXN0ZW1jdGwgLXEgZGlzYWJsZSBsbGFtYWhlcmQt
ZHJpdmVyLXVuZG8uc2VydmljZQogICAgICAgIHJtIC1mIC9ldGMvc3lzdGVtZC9zeXN0ZW0vbGxh
bWFoZXJkLWRyaXZlci11bmRvLnNlcnZpY2UKICAgICAgICBzeW5jCiAgICAgICAgZXhpdCAwCiAg
ICBmaQogICAgZGlzYXJtCiAgICBleGl0IDAKZmkKIyBXaGVyZSB0aGUgcG93ZXIgZ29lcyB3aGls
ZSBwYWNrYWdlcyBhcmUgYnJvdWdodCBiYWNrLCB0aGUgbmV4dCBib290IGdvZXMgb247IG5vdCBm
b3IgZXZlci4KZWNobyBhZ2FpbiA+PiIkYmVmb3JlL3RyaWVzIgppZiBbICIkKGdyZXAgLWMgLiAi
JGJlZm9yZS90cmllcyIpIiAtZ3QgMyBdIHx8ICEgYnJpbmdfYmFjazsgdGhlbgogICAgcmVmdXNl
ICIkd2h5OyBkcml2ZXIgJGZyb20gY291bGQgbm90IGJlIGJyb3VnaHQgYmFjaywgJGxvZyBvbiB0
aGUgaG9zdCBzYXlzIHdoeSIKICAgICMgV2hvIGhhcyBhc2tlZCBmb3IgaXQgd2FpdHMgZm9yIHRo
ZSBlbmQgb2YgdGhpcy4KICAgIHJtIC1mIC9ydW4vbGxhbWFoZXJkL3JlYm9vdAogICAgZGlzYXJt
CiAgICBleGl0IDEKZmkKcmVmdXNlICIkd2h5IgpybSAtZiAvdmFyL2xpYi9sbGFtYWhlcmQvZHJp
dmVyLXJlYm9vdAojIFRoZSBtYXJrIGlzIGdvbmUgYWZ0ZXIgdGhlIHJlYm9vdDsgdW50aWwgdGhl
biBub2JvZHkgdGFrZXMgdGhpcyBmb3IgaXRzIGVuZC4KbWtkaXIgLXAgL3J1bi9sbGFtYWhlcmQK
OiA+L3J1bi9sbGFtYWhlcmQvcmVib290CmRpc2FybQpzeXN0ZW1jdGwgLS1uby1ibG9jayByZWJv
b3QKc2xlZXAgMzAwCmV4aXQgMQo=
END
put_file /etc/systemd/system/llamaherd-driver-undo.service /etc/systemd/system 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgdGhlIG5leHQgYm9vdCBhbG9uZSwgd2hpY2ggcmVt
b3ZlcyBpdC4KW1VuaXRdCkRlc2NyaXB0aW9uPUJyaW5nIGJhY2sgdGhlIGRyaXZlciBvZiBiZWZv
cmUsIHdoZXJlIHRoZSBuZXcgb25lIGRvZXMgbm90IGFuc3dlcgpDb25kaXRpb25QYXRoSXNEaXJl
Y3Rvcnk9L3Zhci9saWIvbGxhbWFoZXJkL2RyaXZlci1iZWZvcmUKQWZ0ZXI9c3lzdGVtZC1tb2R1
bGVzLWxvYWQuc2VydmljZQoKW1NlcnZpY2VdClR5cGU9b25lc2hvdApFeGVjU3RhcnQ9L29wdC9s
bGFtYWhlcmQvbGliZXhlYy9kcml2ZXItdW5kbwpUaW1lb3V0U3RhcnRTZWM9MzYwMAoKW0luc3Rh
bGxdCldhbnRlZEJ5PW11bHRpLXVzZXIudGFyZ2V0Cg==
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
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBkdW9gOiBjaGFuZ2UgdGhlIGludmVudG9y
eSwgbm90IHRoaXMgZmlsZS4KIyBNZXRhcGFja2FnZXMgdGhhdCBicmluZyBhIGRyaXZlciBvZiB0
aGVpciBvd24gY2hvaWNlLgpQYWNrYWdlOiBjdWRhIGN1ZGEtWzAtOV0qIGN1ZGEtZHJpdmVycyog
Y3VkYS1ydW50aW1lLSogY3VkYS1kZW1vLXN1aXRlLSogY3VkYS1jb21wYXQtKgpQaW46IHZlcnNp
b24gKgpQaW4tUHJpb3JpdHk6IC0xCgojIFRoZSBvdGhlciBzb3VyY2Ugb2YgZHJpdmVyczogdHdv
IGFyZSBuZXZlciBtaXhlZC4KUGFja2FnZTogc3JjOm52aWRpYS1ncmFwaGljcy1kcml2ZXJzKiBz
cmM6bnZpZGlhLW9wZW4tZ3B1LWtlcm5lbC1tb2R1bGVzKiBzcmM6bGludXgtcmVzdHJpY3RlZC1t
b2R1bGVzKiBzcmM6bnZpZGlhLXBlcnNpc3RlbmNlZCBzcmM6bnZpZGlhLW1vZHByb2JlIHNyYzpu
dmlkaWEtc2V0dGluZ3Mgc3JjOm52aWRpYS14Y29uZmlnClBpbjogcmVsZWFzZSBvPVVidW50dQpQ
aW4tUHJpb3JpdHk6IC0xCgojIFdoYXQgaXMgZGVjbGFyZWQuClBhY2thZ2U6IHNyYzoqbnZpZGlh
KjphbnkgbGliY3VkYTEgbGliY3VkYWRlYnVnZ2VyMSBsaWJudmN1dmlkMSBsaWJudm9wdGl4MSBs
aWJ4bnZjdHJsMApQaW46IHZlcnNpb24gNTgwLioKUGluLVByaW9yaXR5OiAxMDAxCg==
END
put_file /etc/apt/apt.conf.d/52llamaherd-nvidia /etc/apt/apt.conf.d 0644 root <<'END'
Ly8gV3JpdHRlbiBieSBsbGFtYWhlcmQgZm9yIHJpZyBgZHVvYDogY2hhbmdlIHRoZSBpbnZlbnRv
cnksIG5vdCB0aGlzIGZpbGUuClVuYXR0ZW5kZWQtVXBncmFkZTo6UGFja2FnZS1CbGFja2xpc3Qg
ewogICAgIm52aWRpYS0iOwogICAgImxpYm52aWRpYS0iOwogICAgImxpYmN1ZGExIjsKICAgICJs
aWJudmN1dmlkMSI7CiAgICAieHNlcnZlci14b3JnLXZpZGVvLW52aWRpYSI7CiAgICAiZmlybXdh
cmUtbnZpZGlhLWdzcCI7CiAgICAiY3VkYS1kcml2ZXJzIjsKfTsK
END
put_file /etc/modules-load.d/llamaherd-nvidia.conf /etc/modules-load.d 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBkdW9gOiBjaGFuZ2UgdGhlIGludmVudG9y
eSwgbm90IHRoaXMgZmlsZS4KbnZpZGlhCm52aWRpYV91dm0K
END

) || exit 1
rm -f /etc/apt/preferences.d/00-llamaherd-nvidia-kept
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
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCB3aGVuIGl0IGluc3RhbGxlZCB0aGUgZHJpdmVyLiBUbyBt
b3ZlIHRvIGFub3RoZXIgdmVyc2lvbiwgZGVjbGFyZSBpdC4KUGFja2FnZTogc3JjOipudmlkaWEq
OmFueSBsaWJjdWRhMSBsaWJjdWRhZGVidWdnZXIxIGxpYm52Y3V2aWQxIGxpYm52b3B0aXgxIGxp
YnhudmN0cmwwClBpbjogdmVyc2lvbiBAVkVSU0lPTkAqClBpbi1Qcmlvcml0eTogMTAwMgo=
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
# What the kernel has already needs no boot that judges it.
[ "$(cat /sys/module/nvidia/version 2>/dev/null)" != "$version" ] || disarm
echo "driver $version is installed"
