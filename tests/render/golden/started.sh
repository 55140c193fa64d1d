#!/bin/sh
# Records what a server is started with, or says what of that has changed since: a time tells nothing where a clock was
# wrong. For root alone.
#
#   started record|changed unit|container NAME KEY|- FOLDER...   KEY is the file of its key, FOLDERs those of its models
set -u
<<< observe_gpu.sh: # What a server is started with, a line each: what it is, its hash or number, where it is. $1 is what systemd or Docker
>>>         printf 'record\t%s\n' "$1"
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
