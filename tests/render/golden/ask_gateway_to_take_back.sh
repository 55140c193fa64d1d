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

# Asks the gateway that runs, or tells it what becomes of a server, by the program that came with it.
if ! [ -x /opt/llamaherd/libexec/gateway-talk ]; then
    say none
    finish
fi
# What a run has asked for holds until somebody says otherwise: its timer is gone then.
if ! systemctl is-active -q llamaherd-ready-box.chat.timer; then
    say otherwise
    finish
fi
# What somebody says of this server now holds, and not what a run has left behind.
systemctl stop llamaherd-ready-box.chat.timer 2>/dev/null
said=$(/opt/llamaherd/libexec/gateway-talk ready box.chat 2>&1)
case $? in
0)
    printf '%s\n' "$said"
    ;;
2) say older ;;
*) say silent "$(printf '%s' "$said" | tr '\t\n' '  ' | cut -c -200)" ;;
esac

finish
} </dev/null
