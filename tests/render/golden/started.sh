#!/bin/sh
# Records what a server is started with, or says what of that has changed since: a time tells nothing where a clock was
# wrong. For root alone.
#
#   started record|changed unit|container NAME KEY|- FOLDER...   KEY is the file of its key, FOLDERs those of its models
set -u
# What a server is started with, a line each: what it is, its hash or number, where it is. $1 is what systemd or Docker
# says of it, $2 the file of its key or -, and then come the folders of its models.
started_with() (
    printf '%s\n' "$1" | sed -n 's/^InvocationID=/run\t/p'
    # A unit is its file and its drop-ins.
    printf '%s\n' "$1" | sed -n 's/^FragmentPath=//p; s/^DropInPaths=//p' | sed 's/ \//\n\//g' | grep . |
        tr '\n' '\0' | xargs -0 -r sha256sum | sed 's/^\([0-9a-f]*\)  /file\t\1\t/'
    # With a secret of this host: who reads the hash cannot try keys.
    secret=/var/lib/llamaherd/started/.secret
    [ "$2" = - ] || [ ! -s "$secret" ] ||
        printf 'key\t%s\t%s\n' "$(cat "$secret" "$2" | sha256sum | cut -d ' ' -f 1)" "$2"
    shift 2
    # A file that came again is another one, which only a new start reads.
    for folder; do
        folder=$folder awk -F '\t' '{ print "model\t" $3 "\t" ENVIRON["folder"] "/" $4 }' "$folder/.manifest"
        find "$folder" -type f ! -name .manifest -printf 'inode\t%i\t%p\n'
    done
) 2>/dev/null

# What no longer holds of the record $1, a line each: what it is, and where; what holds now comes on stdin.
changed_since() {
    if [ -f "$1" ]; then
        grep -Fxvf - "$1" | awk -F '\t' '{ print $1 "\t" $NF }'
    else
        cat >/dev/null
        printf 'record\t%s\n' "$1"
    fi
}

how=$1 kind=$2 name=$3
shift 3
if [ "$kind" = unit ]; then
    folder=/run/llamaherd/started
    facts=$(systemctl show -p InvocationID,FragmentPath,DropInPaths,NeedDaemonReload "$name.service")
else
    # Docker starts containers by itself, also after a boot: this one is still the same.
    folder=/var/lib/llamaherd/started
    facts=$(docker inspect --type container --format 'InvocationID={{.Id}}' "$name")
fi
if [ "$how" = changed ]; then
    ! started_with "$facts" "$@" | changed_since "$folder/$name" | grep .
    exit
fi
umask 022
mkdir -p /run/llamaherd /var/lib/llamaherd && install -d -m 0700 "$folder" /var/lib/llamaherd/started || exit 1
umask 077
secret=/var/lib/llamaherd/started/.secret
if [ ! -s "$secret" ]; then
    # Two may start at once: a link is made by one of them.
    head -c 32 /dev/urandom >"$secret.$$" && ln "$secret.$$" "$secret"
    rm -f "$secret.$$"
fi
{
    started_with "$facts" "$@"
    # What systemd goes by is then another text than the one on disk.
    case $facts in *NeedDaemonReload=yes*) printf 'file\tunread\t%s.service\n' "$name" ;; esac
} >"$folder/$name.new" && mv -f "$folder/$name.new" "$folder/$name"
