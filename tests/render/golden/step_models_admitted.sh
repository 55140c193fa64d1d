# Lets files in: each gets its name in the store by one rename, and the manifest of its folder says that it is whole
# (size, time, hash, name), so that it is never hashed again.
incoming=/var/lib/llamaherd/models/.incoming
<<< step_release.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 store 3600 'letting models in' || exit 1
mkdir -p /var/lib/llamaherd/models || exit 1
umask 022
# What a person should know of how it came, although it did.
if [ -s /run/llamaherd/fetch/warnings ] && [ ! -L /run/llamaherd/fetch/warnings ]; then cat /run/llamaherd/fetch/warnings && rm -f /run/llamaherd/fetch/warnings; fi
tab=$(printf '\t')
# $1 name, $2 sha256; the line of a manifest that says of a file, in its folder, that it is whole.
line() { stat -c "%s$tab%.9Y$tab$2$tab$1" "$1"; }

# Whether nobody but root can write to it.
ours() { [ "$(find "$1" -maxdepth 0 -type f -user root ! -perm /022 2>/dev/null)" ]; }

# $1 name, $2 sha256, $3 `keep` where a file that comes later has the same content; in the model's folder
admit() {
    if [ -f .manifest ] && ours "$1" && line "$1" "$2" | grep -Fxqf - .manifest; then
        return 0
    elif [ -f "$incoming/$2" ]; then
        from=$incoming/$2
    elif [ -f /var/lib/llamaherd/incoming/"$2" ]; then
        from=/var/lib/llamaherd/incoming/$2
        have=$(sha256sum <"$from" | cut -d ' ' -f 1)
        if [ "$have" != "$2" ]; then
            rm -f "$from"
            echo "$1 arrived with sha256 $have, but $2 was expected. Nothing of it was kept; run again" >&2
            return 1
        fi
        chown root:root "$from"
    elif ours "$1" && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$2" ]; then
        return 0 # killed between the rename and the manifest
    else
        echo "$1 is neither in $PWD nor among what has arrived; run again" >&2
        return 1
    fi
    # What was fetched or copied becomes root's. What root has elsewhere too, linked in, stays as it is.
    if [ "$(stat -c %U "$from")" = llama-fetch ]; then chown root:root "$from"; fi || return 1
    if [ "$(stat -c '%u %h' "$from")" = '0 1' ]; then chmod 0644 "$from"; fi || return 1
    mkdir -p "$(dirname "$1")" || return 1
    [ ! -e "$1" ] || replaced=yes
    if [ "${3:-}" ]; then
        # A second name of one file; not every file system has that.
        [ "$from" -ef "$1" ] || ln -fT "$from" "$1" 2>/dev/null || { cp -T "$from" "$1.part" && sync "$1.part" && mv -fT "$1.part" "$1"; }
    # Two links to one file: a rename would leave both.
    elif [ "$from" -ef "$1" ]; then
        rm -f "$from"
    else
        mv -fT "$from" "$1"
    fi
}

failed=no
# One that cannot be let in keeps no other outside.
(
mkdir -p /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc && cd /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc || exit 1
replaced=''
admit UD-Q4_K_XL/35b-00001-of-00002.gguf 1111111111111111111111111111111111111111111111111111111111111111 || exit 1
admit UD-Q4_K_XL/35b-00002-of-00002.gguf 2222222222222222222222222222222222222222222222222222222222222222 || exit 1
# Other models may have files of the same revision: their lines stay.
{
    [ ! -f .manifest ] || printf '%s\n' UD-Q4_K_XL/35b-00001-of-00002.gguf UD-Q4_K_XL/35b-00002-of-00002.gguf | awk -F "$tab" 'NR == FNR {mine[$0]; next} !($4 in mine)' - .manifest
    line UD-Q4_K_XL/35b-00001-of-00002.gguf 1111111111111111111111111111111111111111111111111111111111111111
    line UD-Q4_K_XL/35b-00002-of-00002.gguf 2222222222222222222222222222222222222222222222222222222222222222
} >.manifest.part || exit 1
# Its time says since when a server may be running something else: not because a file came beside those that were there.
[ ! -f .manifest ] || [ "$replaced" ] || grep -Fxvqf .manifest.part .manifest || touch -r .manifest .manifest.part
sync .manifest.part && chmod 0644 .manifest.part && mv -f .manifest.part .manifest && sync . || exit 1
rm -f /var/lib/llamaherd/incoming/1111111111111111111111111111111111111111111111111111111111111111 /var/lib/llamaherd/incoming/2222222222222222222222222222222222222222222222222222222222222222
) || failed=yes
(
mkdir -p /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 && cd /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 || exit 1
replaced=''
admit gemma.gguf a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 || exit 1
# Other models may have files of the same revision: their lines stay.
{
    [ ! -f .manifest ] || printf '%s\n' gemma.gguf | awk -F "$tab" 'NR == FNR {mine[$0]; next} !($4 in mine)' - .manifest
    line gemma.gguf a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5
} >.manifest.part || exit 1
# Its time says since when a server may be running something else: not because a file came beside those that were there.
[ ! -f .manifest ] || [ "$replaced" ] || grep -Fxvqf .manifest.part .manifest || touch -r .manifest .manifest.part
sync .manifest.part && chmod 0644 .manifest.part && mv -f .manifest.part .manifest && sync . || exit 1
rm -f /var/lib/llamaherd/incoming/a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5
) || failed=yes
[ "$failed" = no ]

