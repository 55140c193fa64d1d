{
<<< observe_gpu.sh: LC_ALL=C
>>> case $word in 8 | 9 | 10 | 14 | 30 | 31 | 32) say machine laptop ;; esac
<<< observe_gpu.sh: for compiler in "$root"/usr/bin/g++-[0-9]*; do
>>> grep -qs '^Status: hold ' "$status" && awk '/^Package: / { name = $2 } /^Status: hold / { print "machine\theld\t" name }' "$status"
<<< observe_gpu.sh: dpkg-query -W -f 'package\t${Package}\t${db:Status-Status}\n' ca-certificates ccache cmake curl g++ git libssl-dev mmdebstrap ninja-build python3 2>/dev/null
>>> done <<END
$(getent passwd llama llama-build llama-fetch llama-chat)
END
# What an account of ours must not have: a number that is another's, who may then do what it may, and a password.
shadow=/etc/shadow
[ -r "$shadow" ] || shadow=/dev/null
getent passwd | ours=' llama llama-build llama-fetch llama-chat ' awk -F : '
<<< observe_gpu.sh:     FILENAME ~ /^\// { if (index(ENVIRON["ours"], " " $1 " ") && $2 !~ /^[!*]/) print "password\t" $1; next }
>>> } | sha256sum) && say fetcher "${sum%% *}"
<<< observe_gpu.sh: [ -e /run/llamaherd/undo/docker ] && say docker armed
>>>     *) say docker silent "$( (dockerd --version || docker --version) 2>/dev/null | sed -n 's/^Docker version \([^,]*\),.*/\1/p')" ;;


<<< observe_gpu.sh: # What a finished build is known by without reading all of it: who replaces a program changes something of this.
>>>         sed -n 's/^ *"\(.*\)": "\([0-9a-f]*\)" *$/\2  \1/p' | sha256sum -c --strict --status) 2>/dev/null
home=/opt/llamaherd/builds/llama.cpp-254c2e111fca
if [ -f $home/manifest.json ] && [ -f $home/bin/llama-server ] && [ -f $home/bin/llama-fit-params ]; then
    if stamp $home | cmp -s - $home/.stamp; then
        say build llama.cpp-254c2e111fca done
    elif intact $home; then
        say build llama.cpp-254c2e111fca intact
    else
        say build llama.cpp-254c2e111fca damaged
    fi
elif [ -f /var/lib/llamaherd/work/llama.cpp-254c2e111fca/out/manifest.json ]; then
    say build llama.cpp-254c2e111fca built
elif systemctl -q is-active llamaherd-build-llama.cpp-254c2e111fca.service; then
    say build llama.cpp-254c2e111fca building
fi
<<< observe_gpu.sh: for source in abababababababababababababababababababababababababababababababab; do
>>> set --
for folder in /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 /var/lib/llamaherd/models/local/0404040404040404; do
    [ -d "$folder" ] || continue
<<< observe_gpu.sh:     set -- "$@" "$folder"
>>> } </dev/null
