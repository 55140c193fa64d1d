# Fetching happens in a unit of its own, which outlives this connection: here it is begun.
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
base64|{
base64| "id": "8e2bba1ef066",
base64| "incoming": "/var/lib/llamaherd/models/.incoming",
base64| "store": "/var/lib/llamaherd/models",
base64| "files": [
base64|  {
base64|   "name": "35b: UD-Q4_K_XL/35b-00001-of-00002.gguf",
base64|   "sha256": "1111111111111111111111111111111111111111111111111111111111111111",
base64|   "size": 10000000000,
base64|   "sources": [
base64|    {
base64|     "name": "hub",
base64|     "url": "https://hub.lan/1111111111111111111111111111111111111111111111111111111111111111",
base64|     "secret": "hub"
base64|    }
base64|   ]
base64|  },
base64|  {
base64|   "name": "35b: UD-Q4_K_XL/35b-00002-of-00002.gguf",
base64|   "sha256": "2222222222222222222222222222222222222222222222222222222222222222",
base64|   "size": 20000000000,
base64|   "sources": [
base64|    {
base64|     "name": "hub",
base64|     "url": "https://hub.lan/2222222222222222222222222222222222222222222222222222222222222222",
base64|     "secret": "hub"
base64|    }
base64|   ]
base64|  }
base64| ],
base64| "folders": [],
base64| "connections": 8,
base64| "bandwidth": []
base64|}
base64|\ No newline at end of file
END
    (umask 077 && base64 -d >"$run/secrets/"hub) <<'END' || return 1
base64|hf_token
base64|\ No newline at end of file
END
    chown -R llama-fetch:llama-fetch "$run"
    systemctl reset-failed "$unit" 2>/dev/null
    # What is on this host already is looked for as root (`+`), since it may lie in anybody's home, and outside of the
    # unit's mounts: to each of those another file system begins, as far as links are concerned.
    systemd-run -q --unit="$unit" --collect -p Type=exec -p User=llama-fetch \
        -p ExecStartPre="+/usr/bin/nsenter --mount=/proc/1/ns/mnt /opt/llamaherd/libexec/fetcher/fetch adopt $run.json $run" -p TimeoutStartSec=566400 -p RuntimeMaxSec=566400 -p TimeoutStopSec=30 \
        -p ExecStopPost="+/usr/bin/rm -rf $run/secrets" -p Nice=10 -p IOSchedulingPriority=7 -p OOMScoreAdjust=800 \
        -p ProtectSystem=strict -p ReadWritePaths="$incoming $run" -p ProtectHome=yes -p PrivateTmp=yes -p PrivateDevices=yes \
        -p NoNewPrivileges=yes -p CapabilityBoundingSet= -p RestrictAddressFamilies="AF_INET AF_INET6 AF_UNIX" \
        -p ProtectKernelModules=yes -p ProtectKernelTunables=yes -p ProtectControlGroups=yes -p RestrictNamespaces=yes \
        -p LockPersonality=yes -p RestrictRealtime=yes -p RestrictSUIDSGID=yes -p SystemCallArchitectures=native \
        -p SystemCallFilter=@system-service -p SystemCallErrorNumber=EPERM \
        /opt/llamaherd/libexec/fetcher/fetch fetch "$run.json" "$run" && join
}

<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
# Two runs at once begin one fetch.
hold_fetch() { hold 9 fetch 3600 'beginning to fetch' || exit 1; }
hold_fetch
all_here && exit 0
if runs "$unit"; then
    ours && join && exit 0
    echo "the fetch that runs is for what was declared before: it ends here, and what it has is kept"
    systemctl stop "$unit"
fi
begin || { echo "cannot begin to fetch in $store; the reason is above" >&2; exit 1; }
echo 'fetching 2 files of 35b (30.0 GB) meanwhile'
