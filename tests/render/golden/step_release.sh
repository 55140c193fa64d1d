# What was done here, under the next number: the release and its plan. Neither holds a secret.
<<< step_accounts.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 releases 3600 'writing down what was done' || exit 1
cd / && umask 077 && mkdir -p /var/lib/llamaherd/releases && cd /var/lib/llamaherd/releases || exit 1
last=$(ls | sed -n 's/^\([0-9]\{1,9\}\)\.json$/\1/p' | sort -n | tail -n 1)
number=$((${last:-0} + 1))
base64 -d >.plan <<'END' && base64 -d >.release <<'END2' && sync .plan .release && mv -f .plan $number.plan && mv -f .release $number.json || exit 1
base64|packed
base64|\ No newline at end of file
END
e30=
END2
ls | sed -n 's/^\([0-9]\{1,9\}\)\.json$/\1/p' | sort -rn | tail -n +51 | while read -r old; do rm -f "$old.json" "$old.plan"; done
