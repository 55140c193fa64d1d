# Makes a repository known to apt. Its key is let in by its fingerprint; a repository that does not answer is forgotten
# again, so that apt goes on working as before.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
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
hold 8 host 3600 'a repository of apt' || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
curl -q -fsSL --retry 3 --max-time 60 -o "$work/key" https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/3bf863cc.pub 2>"$work/said" || {
    echo 'the key of https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64 could not be fetched from https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/3bf863cc.pub' >&2
    sed 's/^/  /' "$work/said" >&2
    exit 1
}
command -v gpg >/dev/null || {
    apt-get -q -o DPkg::Lock::Timeout=600 update &&
        apt-get -q -y -o DPkg::Lock::Timeout=600 install --no-install-recommends --no-remove gpg
} >"$work/said" 2>&1 || {
    tail -n 5 "$work/said" >&2
    echo "gpg, which reads the fingerprints of keys, could not be installed" >&2
    exit 1
}
found=$(GNUPGHOME=$work gpg --batch --with-colons --show-keys "$work/key" 2>/dev/null |
    awk -F: '$1 == "pub" {next_is_primary = 1} $1 == "fpr" && next_is_primary {print $10; next_is_primary = 0}')
[ "$found" = EB693B3035CD5710E231E123A4B469963BF863CC ] || {
    echo 'the key at https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/3bf863cc.pub is not the one that is declared, EB693B3035CD5710E231E123A4B469963BF863CC' >&2
    echo "  it has: $(echo ${found:-no key that gpg can read})" >&2
    exit 1
}
# Armoured, as the ending of its name tells apt.
case $(head -c 5 "$work/key") in
-----) cp "$work/key" "$work/armoured" ;;
*) GNUPGHOME=$work gpg --batch --enarmor <"$work/key" 2>/dev/null | sed 's/ARMORED FILE/PUBLIC KEY BLOCK/; /^Comment:/d' >"$work/armoured" ;;
esac
mkdir -p /etc/apt/keyrings /etc/apt/sources.list.d
install -m 0644 "$work/armoured" /etc/apt/keyrings/llamaherd-nvidia.asc || exit 1
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
put_file /etc/apt/sources.list.d/llamaherd-nvidia.sources /etc/apt/sources.list.d 0644 root <<'END'
IyBXcml0dGVuIGJ5IGxsYW1haGVyZCBmb3IgcmlnIGBkdW9gOiBjaGFuZ2UgdGhlIGludmVudG9y
eSwgbm90IHRoaXMgZmlsZS4KVHlwZXM6IGRlYgpVUklzOiBodHRwczovL2RldmVsb3Blci5kb3du
bG9hZC5udmlkaWEuY29tL2NvbXB1dGUvY3VkYS9yZXBvcy91YnVudHUyNDA0L3g4Nl82NC8KU3Vp
dGVzOiAvClNpZ25lZC1CeTogL2V0Yy9hcHQva2V5cmluZ3MvbGxhbWFoZXJkLW52aWRpYS5hc2MK
END

apt-get -q -o DPkg::Lock::Timeout=600 -o Dir::Etc::sourcelist=/etc/apt/sources.list.d/llamaherd-nvidia.sources -o Dir::Etc::sourceparts=- \
    -o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any update >"$work/said" 2>&1 || {
    rm -f /etc/apt/sources.list.d/llamaherd-nvidia.sources
    grep -E '^(E|W|Err)' "$work/said" | head -n 5 >&2
    echo 'https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64 does not answer as a repository of apt; it was not added' >&2
    exit 1
}
