# Receives a file on stdin, from the byte on that is missing: what an earlier run has sent is kept beside its place. Where
# another run sends it just now, that is waited for as long as it gets on. Before `go N` come lines for people.
umask 077
path=/var/lib/llamaherd/incoming/1111111111111111111111111111111111111111111111111111111111111111
part=$path.part
size=4096
# Whether all of it is here: it has arrived, or another run has let it in as $1/$2, where a manifest vouches for it.
here() { [ "$(stat -c %s "$path" 2>/dev/null)" = "$size" ] || settled /var/lib/llamaherd/models/local/1111111111111111 'a model.gguf'; }
# As a look judges it: what is not root's alone to write is no file of the store.
settled() (
    cd "$1" 2>/dev/null && [ -f "$2" ] && [ ! -L "$2" ] || exit 1
    [ ! -f .manifest ] || {
        [ "$(find "./$2" -maxdepth 0 -user 0 ! -perm /022 2>/dev/null)" ] &&
            stat -c "%s	%.9Y	${path##*/}	$2" "$2" | grep -Fxqf - .manifest
    }
)
open_part() {
    why=$({ : >>"$part"; } 2>&1) || { echo "cannot write $part: ${why##*: }" >&2; exit 1; }
    exec 9>>"$part"
}
open_part
waited=0 stood=0 had='' began=$(date +%s)
# What was renamed or removed meanwhile is another file's by now, and not to be written to.
until flock -n 9 && [ "$part" -ef /proc/self/fd/9 ]; do
    [ $(($(date +%s) - began)) -lt 86400 ] || { echo "another run has not sent this file to this host within 24 h; end that one, and run again: it goes on from there" >&2; exit 1; }
    if [ ! "$part" -ef /proc/self/fd/9 ]; then
        # A moment for who sent it to let it in.
        for _ in 1 2 3 4 5 6 7 8 9 10; do ! here || break; sleep 1; done
        ! here || { echo "go $size"; exit 0; }
        open_part
        continue
    fi
    now=$(stat -c %s "$part")
    [ "$now" = "$had" ] || stood=0
    had=$now
    [ "$stood" -lt 150 ] || { echo "another run sends this file to this host, and has got no further than $now bytes for 150 s; end that one, and run again: it goes on from there" >&2; exit 1; }
    [ $((waited % 10)) != 0 ] || echo "another run sends it: $((now / 1000000)) of $((size / 1000000)) MB are here; waiting for that"
    waited=$((waited + 1)) stood=$((stood + 1))
    sleep 1
done
! here || { rm -f "$part"; echo "go $size"; exit 0; }
have=$(stat -c %s "$part") && [ "$have" -le "$size" ] || { : >"$part"; have=0; }
echo "go $have"
cat >&9 || { echo "cannot write $part: $(df -h "$part" | awk 'NR == 2 {print $4 " are free on " $6}'); run again once there is room" >&2; exit 1; }
[ "$(stat -c %s "$part")" = "$size" ] || { echo "only a part of $path arrived; the next run goes on from there" >&2; exit 1; }
mv -f "$part" "$path"
