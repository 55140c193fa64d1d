{
<<< ask_releases.sh: LC_ALL=C
>>>         say release "$number" "$(head -c 262144 "$number.json" | base64 | tr -d '\n')"
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
