# Starts the build in a unit of its own, or joins the one that runs already, and says how far it is.
id=llama.cpp-254c2e111fca
work=/var/lib/llamaherd/work/$id
unit=llamaherd-build-$id.service
home=/opt/llamaherd/builds/$id
# What a finished build is known by without reading all of it: who replaces a program changes something of this.
stamp() {
    (cd "$1" && stat -c '%n %a %u' . bin && stat -c '%n %a %u %s %.Y %.Z %i' manifest.json bin/*) 2>/dev/null
}
# Whether its programs are those that its manifest has the hashes of.
intact() {
    (cd "$1/bin" && sed -n 's/.*"sha256": {\(.*\)}}.*/\1/p' ../manifest.json | tr ',' '\n' |
        sed -n 's/^ *"\(.*\)": "\([0-9a-f]*\)" *$/\2  \1/p' | sha256sum -c --strict --status) 2>/dev/null
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
whole() { [ -f "$home/manifest.json" ] && [ -f "$home/bin/llama-server" ] && [ -f "$home/bin/llama-fit-params" ]; }
# Without it a build is unfinished: what is not what was built is built anew.
! whole || intact "$home" || rm -f "$home/manifest.json"
if ! whole && ! runs "$unit" && [ ! -f "$work/out/manifest.json" ]; then
    systemctl reset-failed "$unit" 2>/dev/null
    install -d -o llama-build "$work"
    rm -f "$work/failed" "$work/build.log" "$work/build.sh"  # links that an earlier build may have left
    base64 -d >"$work/build.sh" <<'END' || exit 1
base64|<<< build_llama_cpp_cpu.sh: #!/bin/sh
base64|>>> mv out/manifest.json.part out/manifest.json
END
    systemd-run -q --unit="$unit" --collect -p User=llama-build -p Nice=10 -p OOMScoreAdjust=800 \
        -p RuntimeMaxSec=43200 -p NoNewPrivileges=yes -p ProtectSystem=strict -p ReadWritePaths="$work /var/cache/llamaherd" -p BindPaths="$work:/var/lib/llamaherd/build" \
        -p ProtectHome=yes -p PrivateTmp=yes -E HOME=/var/lib/llamaherd/build sh /var/lib/llamaherd/build/build.sh || exit 1
fi
began=$(date +%s)
while runs "$unit"; do
    sleep 1
    elapsed=$(($(date +%s) - began))
    if [ "$elapsed" -gt 43200 ]; then
        echo "the build of llama.cpp-254c2e111fca has not ended within 12 h; its logs are in $work" >&2
        echo "  help: see with \`ps -ef --forest\` what hangs, end it with \`systemctl stop $unit\`, and run again" >&2
        exit 1
    fi
    if [ $((elapsed % 10)) = 0 ]; then
        # A compiler may have much to say meanwhile.
        done=$(tail -c 100000 "$work/build.log" 2>/dev/null | tr '\r' '\n' | sed -n 's/^\[\([0-9]*\/[0-9]*\)\].*/\1/p' | tail -n 1)
        echo "building llama.cpp-254c2e111fca: ${done:-configuring} after ${elapsed} s"
    fi
done
# Whom a lost connection left behind here waits like us; one of us lets the build in.
<<< step_accounts.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 build 3600 'letting llama.cpp-254c2e111fca in' || exit 1
if whole; then
    echo "built llama.cpp-254c2e111fca"
    exit 0
fi
if [ ! -f "$work/out/manifest.json" ]; then
    rm -rf "$work/source" "$work/tree"  # gigabytes that the next try makes anew; the logs stay
    for log in build configure; do
        # The compiler's own words: what failed, and the errors that it gave for it.
        [ -s "$work/$log.log" ] && grep -aE -A 3 'FAILED:|error:|CMake Error' "$work/$log.log" | head -n 20 | cut -c -300 && break
    done
    cat "$work/failed" 2>/dev/null || echo "the build was stopped before it ended (killed, out of memory, or after 12 h); run again" >&2
    exit 1
fi
# From here root owns it, and the rename makes it exist at once and whole.
chown -R root:root "$work/out" && chmod -R u=rwX,go=rX "$work/out" &&
    rm -rf "$home" && mv -T "$work/out" "$home" && stamp "$home" >"$home/.stamp" &&
    rm -rf "$work" &&
    echo "built llama.cpp-254c2e111fca in $(sed -n 's/.*"seconds": \([0-9]*\).*/\1/p' "$home/manifest.json") s"
