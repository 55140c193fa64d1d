{
LC_ALL=C
export LC_ALL
# A fact: its kind, and its fields. None holds a tab or a line break. It is written at once: others may be said meanwhile.
say() {
    fact=$1
    shift
    for field; do
        fact="$fact	$field"
    done
    printf '%s\n' "$fact"
}
# A text: what it is, and of what; then its lines, which may hold anything.
section() {
    printf '@ %s\t%s\n' "$1" "$2"
}
lines() {
    awk '{print "\t" $0}'
}
# After this nothing is said.
finish() {
    echo '@ end'
    exit 0
}
# What files of the login shell print comes before this, perhaps in the same line.
printf '\n@ begin\n'

# A shell script of a fleet's role that inspects a host and prints facts. It changes nothing.
# A part that does not respond is unknown, not absent. Commands whose output is captured report that on descriptor 3.
unread() {
    say unread "$1" >&3
}
exec 3>&1
systemctl_within='timeout 10'
# systemd responds to no client for a moment while it re-executes, and drops the connections of clients that wait. What
# fails for that reason alone is tried again, for 2 s; a restart as a start. `systemctl_within` limits one call.
systemctl() (
    # A host that another init has booted has no systemd that could respond.
    if [ ! -d /run/systemd/system ]; then command systemctl "$@"; exit; fi
    for pause in 0.2 0.3 0.5 1 ''; do
        failed=0
        { complaint=$(${systemctl_within:-command} systemctl "$@" 2>&1 >&4 4>&-) || failed=$?; } 4>&1
        case $failed:$complaint in
        0:* | 124:*) break ;;
        *'onnect to '*bus* | *'Connection reset by peer'* | *'Connection refused'* | *'Connection timed out'* | \
            *'Transport endpoint is not connected'* | *'onnection terminated'* | *disconnected*) failed=75 ;;
        *) break ;;
        esac
        [ "$pause" ] || break
        sleep "$pause"
        [ "$1" != restart ] || { shift && set -- start "$@"; }
    done
    [ -z "$complaint" ] || printf '%s\n' "$complaint" >&2
    case $failed in 75 | 124) unread systemd ;; esac
    exit $failed
)
# If systemd hangs, each call of the script would wait as long as this call.
[ ! -d /run/systemd/system ] || systemctl show -P Version >/dev/null 2>&1 || [ $? -lt 75 ] || finish

say motd "$(systemctl is-active motd.service)"

finish
} </dev/null
