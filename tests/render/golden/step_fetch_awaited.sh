# Fetching happens in a unit of its own, which outlives this connection: here it is begun and watched.
<<< step_fetch_begun.sh: store=/var/lib/llamaherd/models
>>> hold_fetch
began=$(date +%s)
watch() {
    seconds=0 last=''
    while runs "$unit"; do
        if [ $(($(date +%s) - began)) -gt 566400 ]; then
            echo "the fetch has not ended within 157 h; what has come is kept" >&2
            echo "  help: \`journalctl -u llamaherd-fetch.service\` says more; end it with \`systemctl stop llamaherd-fetch.service\`, and \`herd up\` goes on from there" >&2
            exit 1
        fi
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
the fetch ended before all had come: by `systemctl stop`, a kill, for want of memory, or at its limit of time
  help: `journalctl -u llamaherd-fetch.service` says more; what has come is kept, and `herd up` goes on from there
END
        exit 1
    else
        begin || { echo "cannot begin to fetch in $store; the reason is above" >&2; exit 1; }
    fi
done
exec 9>&-
