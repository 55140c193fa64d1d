{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# What was done here, a fact for each release; and the plans that are asked for: of the newest releases, and of the newest
# that came out well, however many have failed since. Changes nothing.
if cd /var/lib/llamaherd/releases 2>/dev/null; then
    numbers=$(ls | sed -n 's/^\([0-9]\{1,9\}\)\.json$/\1/p' | sort -rn | head -n 50)
    for number in $numbers; do
        say release "$number" "$(head -c 262144 "$number.json" | base64 | tr -d '\n')"
    done
    good=$(for number in $numbers; do grep -qF '"failed":[]' "$number.json" && echo "$number"; done | head -n 3)
    for number in $(printf '%s\n' $(printf '%s\n' $numbers | head -n 3) $good 7 | sort -rnu); do
        [ ! -s "$number.plan" ] || say planned "$number" "$(head -c 1048576 "$number.plan" | base64 | tr -d '\n')"
    done
fi

finish
} </dev/null
