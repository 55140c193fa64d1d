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
IGFyZSBuZXZlciBtaXhlZC4KUGFja2FnZTogbnZpZGlhLWRyaXZlciogbnZpZGlhLW9wZW4qIG52
aWRpYS1oZWFkbGVzcyogbnZpZGlhLWRrbXMqIG52aWRpYS1rZXJuZWwqIG52aWRpYS1maXJtd2Fy
ZSogbnZpZGlhLXV0aWxzKiBudmlkaWEtY29tcHV0ZS11dGlscyogbnZpZGlhLXNtaSBudmlkaWEt
cGVyc2lzdGVuY2VkIG52aWRpYS1tb2Rwcm9iZSBudmlkaWEtc2V0dGluZ3MgbnZpZGlhLXhjb25m
aWcgbnZpZGlhLWFsdGVybmF0aXZlIG52aWRpYS1sZWdhY3ktY2hlY2sgbnZpZGlhLXN1c3BlbmQt
Y29tbW9uIG52aWRpYS1lZ2wqIG52aWRpYS12dWxrYW4qIG52aWRpYS1vcGVuY2wqIG52aWRpYS12
ZHBhdSogbnZpZGlhLWN1ZGEtbXBzIG52aWRpYS1saWJvcGVuY2wxIGxpYmN1ZGExIGxpYmN1ZGFk
ZWJ1Z2dlcjEgbGlibnZjdXZpZDEgbGlibnZvcHRpeDEgbGlibnZpZGlhLVshY10qIGxpYm52aWRp
YS1jZmcxKiBsaWJudmlkaWEtY29tcHV0ZSogbGlibnZpZGlhLWNvbW1vbiogbGlibnZpZGlhLWNv
bXBpbGVyKiBsaWJnbDEtbnZpZGlhKiBsaWJnbHgtbnZpZGlhKiBsaWJlZ2wtbnZpZGlhKiBsaWJn
bGVzLW52aWRpYSogbGlieG52Y3RybCogZmlybXdhcmUtbnZpZGlhLWdzcCogZmlybXdhcmUtbnZp
ZGlhLWdyYXBoaWNzIHhzZXJ2ZXIteG9yZy12aWRlby1udmlkaWEqIGxpbnV4LW1vZHVsZXMtbnZp
ZGlhLSogbGludXgtb2JqZWN0cy1udmlkaWEtKiBsaW51eC1zaWduYXR1cmVzLW52aWRpYS0qClBp
bjogcmVsZWFzZSBvPU5WSURJQQpQaW4tUHJpb3JpdHk6IC0xCgojIFdoYXQgaXMgZGVjbGFyZWQu
ClBhY2thZ2U6IHNyYzoqbnZpZGlhKjphbnkgbGliY3VkYTEgbGliY3VkYWRlYnVnZ2VyMSBsaWJu
dmN1dmlkMSBsaWJudm9wdGl4MSBsaWJ4bnZjdHJsMApQaW46IHZlcnNpb24gNTgwLioKUGluLVBy
aW9yaXR5OiAxMDAxCg==
END
rm -f "$work/preferences/00-llamaherd-nvidia-kept"
apt() {
    what=$1
    shift
    "apt-$what" -q -o Dir::Etc::preferencesparts="$work/preferences" -o DPkg::Lock::Timeout=600 "$@"
}
# All at once: apt takes seconds to match preferences with all packages.
set -- libnvidia-compute-580  
for kernel in ; do set -- "$@" "linux-headers-$kernel"; done
apt cache policy "$@" 2>/dev/null |
    awk '/^[^ ]/ {name = $1} /^  Candidate: / {sub(/^[0-9]*:/, "", $2); print name $2}' >"$work/candidates"
candidate() { sed -n "s/^$1://p" "$work/candidates"; }

case $(candidate libnvidia-compute-580) in
580.* | 580-* | 580) ;;
*)
    has=$(apt-cache -q madison libnvidia-compute-580 2>/dev/null | awk '{print $3}' | sed 's/^[0-9]*://; s/-.*//' | sort -uV | tail -n 8 | paste -sd ' ')
    fail 'the distribution has no driver 580 (libnvidia-compute-580)' "  help: it has ${has:-none}; declare one of these, or another \`from\`"
    ;;
esac
set -- libnvidia-compute-580 nvidia-headless-no-dkms-580-open nvidia-compute-utils-580 nvidia-utils-580 linux-modules-nvidia-580-open-generic
for each in ; do
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
for each in ; do
    case " $* " in *" $each "*) continue ;; esac
    case $(candidate "$each") in
    580.* | 580-* | 580) set -- "$@" "$each" ;;
    *) case $each in nvidia-modprobe | nvidia-settings | nvidia-xconfig) ;; *) set -- "$@" "$each-" ;; esac ;;
    esac
done
for each in ; do
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
L2xsYW1haGVyZC9kcml2ZXItYXJtZWQKfQpmcm9tPSQoY2F0ICIkYmVmb3JlL2Zyb20iKSB0bz0k
KGNhdCAiJGJlZm9yZS90byIpIGNhcmRzPSQoY2F0ICIkYmVmb3JlL2NhcmRzIikKWyAiJGZyb20i
IF0gJiYgWyAiJHRvIiBdICYmIFsgIiRjYXJkcyIgXSB8fCB7CiAgICBkaXNhcm0KICAgIGV4aXQg
MQp9Cm1rZGlyIC1wIC92YXIvbG9nL2xsYW1haGVyZApsb2c9L3Zhci9sb2cvbGxhbWFoZXJkL2Fw
dC5sb2cKd29yaz0kKG1rdGVtcCAtZCkgfHwgZXhpdCAxCnRyYXAgJ3JtIC1yZiAiJHdvcmsiJyBF
WElUCiMgVGhlIGNsb2NrIG1heSBqdW1wIGF0IGJvb3Q7IHRoaXMgb25lIGRvZXMgbm90Lgpub3co
KSB7IGN1dCAtZCAuIC1mIDEgL3Byb2MvdXB0aW1lOyB9CgojIFdoZXRoZXIgYXMgbWFueSBHUFVz
IGFuc3dlciBhcyBkaWQgYmVmb3JlLCBlbHNlIGB3aHlgLiBXaGF0IGhhbmdzIGluIHRoZSBkcml2
ZXIgY2Fubm90IGV2ZW4gYmUga2lsbGVkOiBpdCBpcyBsZWZ0CiMgYmVoaW5kLgphbnN3ZXJzKCkg
ewogICAgcm0gLWYgIiR3b3JrL2NvZGUiCiAgICB7CiAgICAgICAgdGltZW91dCAtayA1IDIwIG1v
ZHByb2JlIG52aWRpYSAmJiB0aW1lb3V0IC1rIDUgMjAgbW9kcHJvYmUgbnZpZGlhX3V2bQogICAg
ICAgIHRpbWVvdXQgLWsgNSAzMCBudmlkaWEtc21pIC1MID4iJHdvcmsvc2FpZCIgMj4mMQogICAg
ICAgIGVjaG8gJD8gPiIkd29yay9jb2RlLm5ldyIgJiYgbXYgIiR3b3JrL2NvZGUubmV3IiAiJHdv
cmsvY29kZSIKICAgIH0gPi9kZXYvbnVsbCAyPiYxIDg+Ji0gJgogICAgYXNrZWQ9JChub3cpCiAg
ICB1bnRpbCBbIC1lICIkd29yay9jb2RlIiBdOyBkbwogICAgICAgIFsgJCgoJChub3cpIC0gYXNr
ZWQpKSAtbHQgNjAgXSB8fCB7CiAgICAgICAgICAgIHdoeT0ndGhlIGRyaXZlciBoYW5ncycKICAg
ICAgICAgICAgcmV0dXJuIDEKICAgICAgICB9CiAgICAgICAgc2xlZXAgMC4yCiAgICBkb25lCiAg
ICBjb2RlPSQoY2F0ICIkd29yay9jb2RlIikKICAgIHNhaWQ9JChncmVwIC4gIiR3b3JrL3NhaWQi
IHwgaGVhZCAtbiAxIHwgdHIgLWMgJ1s6cHJpbnQ6XVxuJyAnICcgfCBjdXQgLWMgLTIwMCkKICAg
IHdoeT0ibnZpZGlhLXNtaTogJHtzYWlkOi1ub3RoaW5nfSIKICAgIFsgIiRjb2RlIiAhPSAxMjQg
XSB8fCB3aHk9J252aWRpYS1zbWkgaGFuZ3MnCiAgICBbICIkY29kZSIgPSAwIF0gfHwgcmV0dXJu
IDEKICAgIHNob3duPSQoZ3JlcCAtYyAnXkdQVSAnICIkd29yay9zYWlkIikKICAgIHdoeT0ibnZp
ZGlhLXNtaSBzaG93cyAkc2hvd24gb2YgJGNhcmRzIEdQVXMiCiAgICBbICIkc2hvd24iIC1nZSAi
JGNhcmRzIiBdCn0KIyAkMSBzZWNvbmRzCmFuc3dlcnNfd2l0aGluKCkgewogICAgYmVnYW49JChu
b3cpCiAgICB1bnRpbCBhbnN3ZXJzOyBkbwogICAgICAgIFsgJCgoJChub3cpIC0gYmVnYW4pKSAt
bHQgIiQxIiBdIHx8IHJldHVybiAxCiAgICAgICAgc2xlZXAgMgogICAgZG9uZQp9CgojICQxOiB3
aHkKcmVmdXNlKCkgewogICAgcHJpbnRmICclc1x0JXNcdCVzXHQlc1x0JXNcbicgIiR0byIgJ29w
ZW4gZGlzdHJpYnV0aW9uJyAiJChkYXRlIC11ICcrJUYgJVQgVVRDJykiICIkZnJvbSIgIiQxIiA+
L3Zhci9saWIvbGxhbWFoZXJkL2RyaXZlci1yZWZ1c2VkLm5ldyAmJgogICAgICAgIG12IC1mIC92
YXIvbGliL2xsYW1haGVyZC9kcml2ZXItcmVmdXNlZC5uZXcgL3Zhci9saWIvbGxhbWFoZXJkL2Ry
aXZlci1yZWZ1c2VkCiAgICBlY2hvICJkcml2ZXIgJHRvIGRpZCBub3QgY29tZSB1cDogJDEiCiAg
ICBzeW5jCn0KCiMgV2hhdCBpcyBvbiBkaXNrIGJlY29tZXMgd2hhdCBpdCB3YXMuIFdoYXQgd2Fz
IHdyaXR0ZW4gZm9yIHRoZSBuZXcgZHJpdmVyIGdvZXMgZmlyc3QsIHNvIHRoYXQgbm90aGluZyBw
aW5zIHRoYXQuCmJyaW5nX2JhY2soKSB7CiAgICBkYXRlIC11ICIrPT0gJUYgJVQgYmFjayB0byBk
cml2ZXIgJGZyb20iID4+IiRsb2ciCiAgICBmb3IgcGF0aCBpbiAvZXRjL2FwdC9wcmVmZXJlbmNl
cy5kLzAwLWxsYW1haGVyZC1udmlkaWEta2VwdCAvZXRjL2FwdC9wcmVmZXJlbmNlcy5kLzAwLWxs
YW1haGVyZC1udmlkaWEtd2FudGVkIC9ldGMvYXB0L2FwdC5jb25mLmQvNTJsbGFtYWhlcmQtbnZp
ZGlhOyBkbwogICAgICAgIHJtIC1mICIkcGF0aCIKICAgICAgICBbICEgLWUgIiRiZWZvcmUvZmls
ZXMvJHtwYXRoIyMqL30iIF0gfHwgY3AgLXAgIiRiZWZvcmUvZmlsZXMvJHtwYXRoIyMqL30iICIk
cGF0aCIgfHwgcmV0dXJuIDEKICAgIGRvbmUKICAgIGRwa2cgLS1jb25maWd1cmUgLWEgPj4iJGxv
ZyIgMj4mMQogICAgc2V0IC0tICIkYmVmb3JlIi9kZWJzLyouZGViCiAgICB3aGlsZSByZWFkIC1y
IG5hbWU7IGRvCiAgICAgICAgISBkcGtnLXF1ZXJ5IC1XICIkbmFtZSIgPi9kZXYvbnVsbCAyPiYx
IHx8IHNldCAtLSAiJEAiICIkbmFtZS0iCiAgICBkb25lIDwiJGJlZm9yZS9uZXciCiAgICAjIFdo
YXQgaXMgbmFtZWQgaXMgd2hhdCBjb21lczogcHJlZmVyZW5jZXMgb2YgdGhlIG5ldyBkcml2ZXIn
cyBwYWNrYWdlcyBkbyBub3QgY291bnQsIGFuZCBub3RoaW5nIGlzIGZldGNoZWQuCiAgICBhcHQt
Z2V0IC1xIC15IC1vIERpcjo6RXRjOjpwcmVmZXJlbmNlc3BhcnRzPS9kZXYvbnVsbCAtbyBEaXI6
OkV0Yzo6cHJlZmVyZW5jZXM9L2Rldi9udWxsIC1vIERQa2c6OkxvY2s6OlRpbWVvdXQ9NjAwIFwK
ICAgICAgICAtbyBBY3F1aXJlOjpSZXRyaWVzPTAgLW8gQWNxdWlyZTo6aHR0cDo6VGltZW91dD0x
MCAtbyBBY3F1aXJlOjpodHRwczo6VGltZW91dD0xMCBcCiAgICAgICAgLW8gRHBrZzo6T3B0aW9u
czo6PS0tZm9yY2UtY29uZmRlZiAtbyBEcGtnOjpPcHRpb25zOjo9LS1mb3JjZS1jb25mb2xkIFwK
ICAgICAgICBpbnN0YWxsIC0tbm8taW5zdGFsbC1yZWNvbW1lbmRzIC0tYWxsb3ctZG93bmdyYWRl
cyAiJEAiID4+IiRsb2ciIDI+JjEgfHwgcmV0dXJuIDEKICAgIGRwa2ctcXVlcnkgLVcgLWYgJyR7
UGFja2FnZX0gJHtkYjpTdGF0dXMtU3RhdHVzfVxuJyAnbnZpZGlhLWRyaXZlci1waW5uaW5nLSon
IDI+L2Rldi9udWxsIHwKICAgICAgICBzZWQgLW4gJ3MvIGNvbmZpZy1maWxlcyQvL3AnIHwgeGFy
Z3MgLXIgZHBrZyAtLXB1cmdlID4+IiRsb2ciIDI+JjEKICAgIGtlcm5lbD0kKHJlYWRsaW5rIC1m
IC9ib290L3ZtbGludXogMj4vZGV2L251bGwgfHwgcmVhZGxpbmsgLWYgL3ZtbGludXogMj4vZGV2
L251bGwpCiAgICBbIC1mICIka2VybmVsIiBdIHx8IGtlcm5lbD0kKGxzIC9ib290L3ZtbGludXot
KiAyPi9kZXYvbnVsbCB8IHNvcnQgLVYgfCB0YWlsIC1uIDEpCiAgICBrZXJuZWw9JHtrZXJuZWwj
Iyovdm1saW51ei19CiAgICBbICIkKG1vZGluZm8gLWsgIiRrZXJuZWwiIC1GIHZlcnNpb24gbnZp
ZGlhIDI+L2Rldi9udWxsKSIgPSAiJGZyb20iIF0gfHwgZGttcyBhdXRvaW5zdGFsbCAtayAiJGtl
cm5lbCIgPj4iJGxvZyIgMj4mMQogICAgWyAiJChtb2RpbmZvIC1rICIka2VybmVsIiAtRiB2ZXJz
aW9uIG52aWRpYSAyPi9kZXYvbnVsbCkiID0gIiRmcm9tIiBdIHx8IHJldHVybiAxCiAgICBzeXN0
ZW1jdGwgZGFlbW9uLXJlbG9hZAogICAgWyAiJChzeXN0ZW1jdGwgaXMtZW5hYmxlZCBudmlkaWEt
cGVyc2lzdGVuY2VkLnNlcnZpY2UgMj4vZGV2L251bGwpIiAhPSBkaXNhYmxlZCBdIHx8CiAgICAg
ICAgc3lzdGVtY3RsIC1xIGVuYWJsZSBudmlkaWEtcGVyc2lzdGVuY2VkLnNlcnZpY2UKfQoKaWYg
YW5zd2Vyc193aXRoaW4gNjA7IHRoZW4KICAgIHJtIC1mIC92YXIvbGliL2xsYW1haGVyZC9kcml2
ZXItcmVmdXNlZAogICAgZGlzYXJtCiAgICBleGl0IDAKZmkKIyBXaGVyZSB0aGUgcG93ZXIgZ29l
cyB3aGlsZSBwYWNrYWdlcyBhcmUgYnJvdWdodCBiYWNrLCB0aGUgbmV4dCBib290IGdvZXMgb247
IG5vdCBmb3IgZXZlci4KZWNobyBhZ2FpbiA+PiIkYmVmb3JlL3RyaWVzIgppZiBbICIkKGdyZXAg
LWMgLiAiJGJlZm9yZS90cmllcyIpIiAtZ3QgMyBdIHx8ICEgYnJpbmdfYmFjazsgdGhlbgogICAg
cmVmdXNlICIkd2h5OyBkcml2ZXIgJGZyb20gY291bGQgbm90IGJlIGJyb3VnaHQgYmFjaywgJGxv
ZyBvbiB0aGUgaG9zdCBzYXlzIHdoeSIKICAgIGRpc2FybQogICAgZXhpdCAxCmZpCnJlZnVzZSAi
JHdoeSIKcm0gLWYgL3Zhci9saWIvbGxhbWFoZXJkL2RyaXZlci1yZWJvb3QKIyBUaGUgbWFyayBp
cyBnb25lIGFmdGVyIHRoZSByZWJvb3Q7IHVudGlsIHRoZW4gbm9ib2R5IHRha2VzIHRoaXMgZm9y
IGl0cyBlbmQuCm1rZGlyIC1wIC9ydW4vbGxhbWFoZXJkCjogPi9ydW4vbGxhbWFoZXJkL3JlYm9v
dApkaXNhcm0Kc3lzdGVtY3RsIC0tbm8tYmxvY2sgcmVib290CnNsZWVwIDMwMApleGl0IDEK
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
IGFyZSBuZXZlciBtaXhlZC4KUGFja2FnZTogbnZpZGlhLWRyaXZlciogbnZpZGlhLW9wZW4qIG52
aWRpYS1oZWFkbGVzcyogbnZpZGlhLWRrbXMqIG52aWRpYS1rZXJuZWwqIG52aWRpYS1maXJtd2Fy
ZSogbnZpZGlhLXV0aWxzKiBudmlkaWEtY29tcHV0ZS11dGlscyogbnZpZGlhLXNtaSBudmlkaWEt
cGVyc2lzdGVuY2VkIG52aWRpYS1tb2Rwcm9iZSBudmlkaWEtc2V0dGluZ3MgbnZpZGlhLXhjb25m
aWcgbnZpZGlhLWFsdGVybmF0aXZlIG52aWRpYS1sZWdhY3ktY2hlY2sgbnZpZGlhLXN1c3BlbmQt
Y29tbW9uIG52aWRpYS1lZ2wqIG52aWRpYS12dWxrYW4qIG52aWRpYS1vcGVuY2wqIG52aWRpYS12
ZHBhdSogbnZpZGlhLWN1ZGEtbXBzIG52aWRpYS1saWJvcGVuY2wxIGxpYmN1ZGExIGxpYmN1ZGFk
ZWJ1Z2dlcjEgbGlibnZjdXZpZDEgbGlibnZvcHRpeDEgbGlibnZpZGlhLVshY10qIGxpYm52aWRp
YS1jZmcxKiBsaWJudmlkaWEtY29tcHV0ZSogbGlibnZpZGlhLWNvbW1vbiogbGlibnZpZGlhLWNv
bXBpbGVyKiBsaWJnbDEtbnZpZGlhKiBsaWJnbHgtbnZpZGlhKiBsaWJlZ2wtbnZpZGlhKiBsaWJn
bGVzLW52aWRpYSogbGlieG52Y3RybCogZmlybXdhcmUtbnZpZGlhLWdzcCogZmlybXdhcmUtbnZp
ZGlhLWdyYXBoaWNzIHhzZXJ2ZXIteG9yZy12aWRlby1udmlkaWEqIGxpbnV4LW1vZHVsZXMtbnZp
ZGlhLSogbGludXgtb2JqZWN0cy1udmlkaWEtKiBsaW51eC1zaWduYXR1cmVzLW52aWRpYS0qClBp
bjogcmVsZWFzZSBvPU5WSURJQQpQaW4tUHJpb3JpdHk6IC0xCgojIFdoYXQgaXMgZGVjbGFyZWQu
ClBhY2thZ2U6IHNyYzoqbnZpZGlhKjphbnkgbGliY3VkYTEgbGliY3VkYWRlYnVnZ2VyMSBsaWJu
dmN1dmlkMSBsaWJudm9wdGl4MSBsaWJ4bnZjdHJsMApQaW46IHZlcnNpb24gNTgwLioKUGluLVBy
aW9yaXR5OiAxMDAxCg==
END
put_file /etc/apt/apt.conf.d/52llamaherd-nvidia /etc/apt/apt.conf.d 0644 root <<'END'
Ly8gV3JpdHRlbiBieSBsbGFtYWhlcmQgZm9yIHJpZyBgZHVvYDogY2hhbmdlIHRoZSBpbnZlbnRv
cnksIG5vdCB0aGlzIGZpbGUuClVuYXR0ZW5kZWQtVXBncmFkZTo6UGFja2FnZS1CbGFja2xpc3Qg
ewogICAgIm52aWRpYS0iOwogICAgImxpYm52aWRpYS0iOwogICAgImxpYmN1ZGExIjsKICAgICJs
aWJudmN1dmlkMSI7CiAgICAieHNlcnZlci14b3JnLXZpZGVvLW52aWRpYSI7CiAgICAiZmlybXdh
cmUtbnZpZGlhLWdzcCI7CiAgICAiY3VkYS1kcml2ZXJzIjsKICAgICJsaW51eC1tb2R1bGVzLW52
aWRpYS0iOwogICAgImxpbnV4LWdlbmVyaWMiOwogICAgImxpbnV4LWltYWdlLSI7CiAgICAibGlu
dXgtaGVhZGVycy0iOwogICAgImxpbnV4LW1vZHVsZXMtIjsKfTsK
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
