{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# What lies on a host beside models and may be of no use any more, and who needs it, in facts. Changes nothing.
# Who uses the store. `uses` prints a line "kind TAB name TAB path" for every path in it that is named, open or mapped.
# No process of this script has such a path among its arguments while it looks: it would find itself.
store=/opt/llamaherd/builds
<<< store_look.sh: real=$(readlink -f "$store")
>>>         chmod 0644 .manifest.part && sync .manifest.part
work=/var/lib/llamaherd/work
images() { docker image ls --filter 'reference=llamaherd/*' --format '{{.Repository}}:{{.Tag}}' 2>/dev/null | grep -v ':<none>$'; }
builds() { cd "$real" 2>/dev/null && find . -mindepth 1 -maxdepth 1 -type d ! -name '.*' -printf '%P\n'; }
# Named by what is in them: what somebody else has put there is not ours.
presets() { find /etc/llamaherd/presets/ -maxdepth 1 -type f -regextype posix-extended -regex '.*/[a-z0-9-]+-[0-9a-f]{12}\.ini' -printf '%f\n' 2>/dev/null; }
# Whether something is built just now: what lies in caches and work folders may be part of it.
building() { systemctl list-units -q --no-legend --plain --state=active,activating 'llamaherd-build-*' 2>/dev/null | grep -q .; }
# Who needs which build, image or preset file: a line "kind TAB name TAB thing", and something may follow. Who may use all
# of the builds, or of the files, needs the folder of them.
needs() {
    {
        builds=$(builds) images=$(images) presets=$(presets)
        # Without a folder of builds, every path would be in it.
        [ -z "$real" ] || uses | sed "s|\t$store/|\t|"
        [ -z "$presets" ] || (store=/etc/llamaherd/presets real=$(readlink -f /etc/llamaherd/presets) && uses) | sed 's|\t/etc/llamaherd/presets/|\t|'
        needed | things="$builds
$images
$presets" awk -F '\t' '
            BEGIN { count = split(ENVIRON["things"], thing, "\n") }
            { for (i = 1; i <= count; i++) if (thing[i] != "" && index($0, thing[i])) print $1 "\t" $2 "\t" thing[i] }'
        # Of an image that another was made from, too.
        for image in $images; do
            docker ps -a --filter "ancestor=$image" --format '{{.Names}}' 2>/dev/null | sed "s|.*|container\t&\t$image|"
        done
    } | sort -u
}

size() { du -sx -B1 -- "$1" 2>/dev/null | cut -f 1; }
builds | while read -r build; do say thing build "$build" "$(size "$real/$build")"; done
images | while read -r image; do say thing image "$image" "$(docker image inspect --format '{{.Size}}' "$image")"; done
presets | while read -r file; do say thing preset "$file" "$(size "/etc/llamaherd/presets/$file")"; done
for path in /var/cache/llamaherd/sources/* "$work"/*; do
    [ -e "$path" ] && [ ! -L "$path" ] || continue
    case $path in "$work"/*) kind=work ;; *) kind=source ;; esac
    say thing $kind "${path##*/}" "$(size "$path")"
done
say thing packages apt "$(find /var/cache/apt/archives -type f -name '*.deb' -printf '%b\n' 2>/dev/null | awk '{ sum += $1 } END { printf "%.0f", sum * 512 }')"
building && say building
needs | sed 's/^/need\t/'

finish
} </dev/null
