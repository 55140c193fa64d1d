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

# Which of these servers have a key here. Changes nothing, and shows no key.
for name in chat small-group; do
    [ ! -e /etc/llamaherd/keys/"$name" ] || say key "$name"
done

finish
} </dev/null
