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

# What was done here, a fact for each release; and the plans that are asked for: of the newest releases, and of the newest
# that came out well, however many have failed since. Changes nothing.
if cd /var/lib/llamaherd/releases 2>/dev/null; then
    numbers=$(ls | sed -n 's/^\([0-9]\{1,9\}\)\.json$/\1/p' | sort -rn | head -n 50)
    for number in $numbers; do
        say release "$number" "$(head -c 262144 "$number.json" | base64 | tr -d '\n')"
    done
    good=$(for number in $numbers; do grep -qF '"failed":[]' "$number.json" && echo "$number"; done | head -n 1)
    for number in $(printf '%s\n' $(printf '%s\n' $numbers | head -n 1) $good 0 | sort -rnu); do
        [ ! -s "$number.plan" ] || say planned "$number" "$(head -c 1048576 "$number.plan" | base64 | tr -d '\n')"
    done
fi

# Whether files that are made of keys are as we wrote them last.
for record in /var/lib/llamaherd/written/*; do
    [ -f "$record" ] || continue
    while IFS='	' read -r hash file; do
        now=$(cat /var/lib/llamaherd/written/.secret "$file" 2>/dev/null | sha256sum | cut -d ' ' -f 1)
        if [ "$now" = "$hash" ]; then say text "$file" same; else say text "$file" other; fi
    done <"$record"
done

finish
} </dev/null
