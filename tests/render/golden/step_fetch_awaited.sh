# Fetching happens in a unit of its own, which outlives this connection: here it is begun and watched.
store=/var/lib/llamaherd/models
incoming=/var/lib/llamaherd/models/.incoming
run=/run/llamaherd/fetch
unit=llamaherd-fetch.service
umask 022

tab=$(printf '\t')
# $1 name, $2 sha256; the line of a manifest that says of a file, in its folder, that it is whole.
line() { stat -c "%s$tab%.9Y$tab$2$tab$1" "$1"; }
# $1 folder, $2 name, $3 sha256; whether another run has let the file in meanwhile.
let_in() { [ -f "$1/.manifest" ] && (cd "$1" && line "$2" "$3" | grep -Fxqf - .manifest) 2>/dev/null; }
# Whether all is here that is to be fetched, whole: what arrives has another name until its hash is right.
all_here() {
    [ -f "$incoming/1111111111111111111111111111111111111111111111111111111111111111" ] || let_in /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc UD-Q4_K_XL/35b-00001-of-00002.gguf 1111111111111111111111111111111111111111111111111111111111111111 || return 1
    [ -f "$incoming/2222222222222222222222222222222222222222222222222222222222222222" ] || let_in /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc UD-Q4_K_XL/35b-00002-of-00002.gguf 2222222222222222222222222222222222222222222222222222222222222222 || return 1
}
# Return whether unit $1 runs. systemd that does not respond, as while it re-executes, is no reason to conclude anything.
runs() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        case $(systemctl show -P ActiveState "$1" 2>/dev/null) in
        active | activating | deactivating | reloading) return 0 ;;
        '') sleep 1 ;;
        *) return 1 ;;
        esac
    done
    echo "systemd does not respond, so it is unknown whether $1 runs; nothing was changed: run again" >&2
    exit 1
}
ours() { [ "$(cat "$run.id" 2>/dev/null)" = 8e2bba1ef066 ]; }
# Whoever wants what a fetch brings writes itself down: what that fetch ends with is its answer, and it begins no other.
waits() { grep -Fxqs 0123456789abcdef "$run.watchers"; }
join() { waits || echo 0123456789abcdef >>"$run.watchers"; }

begin() {
    mkdir -p "$store" && install -d -m 0700 -o llama-fetch -g llama-fetch "$incoming" || return 1
    rm -rf "$run"
    install -d "${run%/*}" && install -d -m 0700 "$run" "$run/secrets" || return 1
    # What root reads is root's: the folder beside is the fetching user's.
    printf '%s\n' 8e2bba1ef066 >"$run.id"
    : >"$run.watchers"
    base64 -d >"$run.json" <<'END' || return 1
ewogImlkIjogIjhlMmJiYTFlZjA2NiIsCiAiaW5jb21pbmciOiAiL3Zhci9saWIvbGxhbWFoZXJk
L21vZGVscy8uaW5jb21pbmciLAogInN0b3JlIjogIi92YXIvbGliL2xsYW1haGVyZC9tb2RlbHMi
LAogImZpbGVzIjogWwogIHsKICAgIm5hbWUiOiAiMzViOiBVRC1RNF9LX1hMLzM1Yi0wMDAwMS1v
Zi0wMDAwMi5nZ3VmIiwKICAgInNoYTI1NiI6ICIxMTExMTExMTExMTExMTExMTExMTExMTExMTEx
MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExIiwKICAgInNpemUiOiAxMDAwMDAw
MDAwMCwKICAgInNvdXJjZXMiOiBbCiAgICB7CiAgICAgIm5hbWUiOiAiaHViIiwKICAgICAidXJs
IjogImh0dHBzOi8vaHViLmxhbi8xMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTEx
MTExMTExMTExMTExMTExMTExMTExMTExMTExIiwKICAgICAic2VjcmV0IjogImh1YiIKICAgIH0K
ICAgXQogIH0sCiAgewogICAibmFtZSI6ICIzNWI6IFVELVE0X0tfWEwvMzViLTAwMDAyLW9mLTAw
MDAyLmdndWYiLAogICAic2hhMjU2IjogIjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy
MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIiLAogICAic2l6ZSI6IDIwMDAwMDAwMDAw
LAogICAic291cmNlcyI6IFsKICAgIHsKICAgICAibmFtZSI6ICJodWIiLAogICAgICJ1cmwiOiAi
aHR0cHM6Ly9odWIubGFuLzIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy
MjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIiLAogICAgICJzZWNyZXQiOiAiaHViIgogICAgfQogICBd
CiAgfQogXSwKICJmb2xkZXJzIjogW10sCiAiY29ubmVjdGlvbnMiOiA4LAogImJhbmR3aWR0aCI6
IFtdCn0=
END
    (umask 077 && base64 -d >"$run/secrets/"hub) <<'END' || return 1
aGZfdG9rZW4=
END
    chown -R llama-fetch:llama-fetch "$run"
    systemctl reset-failed "$unit" 2>/dev/null
    # What is on this host already is looked for as root (`+`), since it may lie in anybody's home, and outside of the
    # unit's mounts: to each of those another file system begins, as far as links are concerned.
    systemd-run -q --unit="$unit" --collect -p Type=exec -p User=llama-fetch \
        -p ExecStartPre="+/usr/bin/nsenter --mount=/proc/1/ns/mnt /opt/llamaherd/libexec/fetcher/fetch adopt $run.json $run" -p TimeoutStartSec=infinity -p TimeoutStopSec=30 \
        -p ExecStopPost="+/usr/bin/rm -rf $run/secrets" -p Nice=10 -p IOSchedulingPriority=7 -p OOMScoreAdjust=800 \
        -p ProtectSystem=strict -p ReadWritePaths="$incoming $run" -p ProtectHome=yes -p PrivateTmp=yes -p PrivateDevices=yes \
        -p NoNewPrivileges=yes -p CapabilityBoundingSet= -p RestrictAddressFamilies="AF_INET AF_INET6 AF_UNIX" \
        -p ProtectKernelModules=yes -p ProtectKernelTunables=yes -p ProtectControlGroups=yes -p RestrictNamespaces=yes \
        -p LockPersonality=yes -p RestrictRealtime=yes -p RestrictSUIDSGID=yes -p SystemCallArchitectures=native \
        -p SystemCallFilter=@system-service -p SystemCallErrorNumber=EPERM \
        /opt/llamaherd/libexec/fetcher/fetch fetch "$run.json" "$run" && join
}

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
# Two runs at once begin one fetch.
hold_fetch() { hold 9 fetch 3600 'beginning to fetch' || exit 1; }
hold_fetch
watch() {
    seconds=0 last=''
    while runs "$unit"; do
        sleep 1
        seconds=$((seconds + 1))
        # Often at first, when someone looks on; a line every half minute through the night.
        if [ $seconds -lt 20 ]; then every=2; elif [ $seconds -lt 300 ]; then every=10; else every=30; fi
        [ $((seconds % every)) = 0 ] || continue
        line=$(cat "$run/progress" 2>/dev/null)
        [ "$line" = "$last" ] || echo "$line"
        last=$line
    done
}
until all_here; do
    if runs "$unit"; then
        if ours; then join; else echo "another run fetches what it needs: waiting for it"; fi
        flock -u 9
        watch
        hold_fetch
    elif ours && waits; then
        # One that lets files in has moved them before it says so.
        hold 8 store 3600 'seeing what was let in' || exit 1
        if all_here; then break; fi
        cat "$run/warnings" 2>/dev/null
        cat "$run/failed" >&2 2>/dev/null || cat >&2 <<'END'
the fetch ended before all had come: by `systemctl stop`, a kill, or for want of memory
  help: `journalctl -u llamaherd-fetch.service` says more; what has come is kept, and `herd up` goes on from there
END
        exit 1
    else
        begin || { echo "cannot begin to fetch in $store; the reason is above" >&2; exit 1; }
    fi
done
exec 9>&-
