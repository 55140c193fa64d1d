# Receives a file on stdin, from the byte on that is missing: what an earlier run has sent is kept beside its place.
umask 077
part=/var/lib/llamaherd/incoming/1111111111111111111111111111111111111111111111111111111111111111.part
why=$({ : >>"$part"; } 2>&1) || { echo "cannot write $part: ${why##*: }" >&2; exit 1; }
exec 9>>"$part"
flock -n 9 || { echo "another run sends this file to this host just now" >&2; exit 1; }
have=$(stat -c %s "$part") && [ "$have" -le 4096 ] || { : >"$part"; have=0; }
echo "go $have"
cat >&9 || { echo "cannot write $part: $(df -h "$part" | awk 'NR == 2 {print $4 " are free on " $6}'); run again once there is room" >&2; exit 1; }
[ "$(stat -c %s "$part")" = 4096 ] || { echo "only a part of ${part%.part} arrived; the next run goes on from there" >&2; exit 1; }
mv -f "$part" /var/lib/llamaherd/incoming/1111111111111111111111111111111111111111111111111111111111111111
