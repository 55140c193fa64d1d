{
<<< observe_gpu.sh: LC_ALL=C
>>> # All in two calls: a process each would be most of what a look costs.
set -- /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /etc/systemd/system/llama-chat.service /etc/llamaherd/compose/drafter/compose.yaml /etc/llamaherd/keys/chat
<<< observe_gpu.sh: stat --printf 'file\t%n\t%a %u %U %.Y\n' "$@" 2>/dev/null
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
>>> # What servers read, by somebody who is nobody in particular: each server is a user of its own.
set -- /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-fit-params
for folder in /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 /var/lib/llamaherd/models/local/0404040404040404; do
<<< observe_gpu.sh:     [ ! -d "$folder" ] || set -- "$@" "$folder"
>>>     *' 0') ;;
    'llama-chat '*)
        started_with "$show" /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 | ours_of "$unit" | changed_since /run/llamaherd/started/$name | sed 's/^/changed\t/' | told $name
        if [ "$active" = active ]; then
            process "$pid" /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server llama-chat | told $name
            printf '%s\n' LLAMAHERD_SPEC=ea3d36a7a072 | variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | told $name
            [ -z "$port" ] || ask_later $name "$pid" "$(url_of "$(argument "$pid" host)" "$port")/health"
        fi
        ;;
    esac
}

# From here on the host is asked.
theirs=$(foreign llama-chat.service service.d llama-.service.d)
[ -z "$theirs" ] || printf '%s\n' "$theirs" | told llama-chat
<<< observe_gpu.sh: ours=' '
>>>         'http://docker/containers/json?all=1&filters=%7B%22label%22%3A%5B%22llamaherd.spec%22%5D%7D' \
http://docker/images/llamaherd/engine:llama.cpp-254c2e111fca-a371b6/json 2>/dev/null || [ $? != 124 ] || echo silence; } | awk -F '"' '
<<< observe_gpu.sh:         $0 == "silence" { print }
>>>         case $name in
        /llama-drafter)
            started_with "InvocationID=$id" - /var/lib/llamaherd/models/local/0404040404040404 | changed_since /var/lib/llamaherd/started/llama-drafter | sed 's/^/changed\t/' | told llama-drafter
            # While it starts, Docker's own program may still stand in its server's place.
            if [ "$status" = running ] && [ "$health" != starting ]; then
                printf '%s\n' LLAMA_ARG_CORS_ORIGINS=localhost | variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | told llama-drafter
                # Docker asks, too, and finds out within two minutes.
                [ "$at" != host ] || at=$(argument "$pid" host)
                [ "$health" != healthy ] || ask_later llama-drafter "$pid" "$(url_of "$at" "$port")/health"
            fi
            was=''
            [ ! -s /var/lib/llamaherd/images/llamaherd_engine_llama.cpp-254c2e111fca-a371b6 ] || read -r was </var/lib/llamaherd/images/llamaherd_engine_llama.cpp-254c2e111fca-a371b6
            [ -z "$was" ] || [ "$image" = "$was" ] || printf 'replaced\t%s\n' llamaherd/engine:llama.cpp-254c2e111fca-a371b6 | told llama-drafter
            ;;
        esac
    done <<END
<<< observe_gpu.sh: $containers
>>>     case $said in
    *"${break}image "llamaherd/engine:llama.cpp-254c2e111fca-a371b6' '*) have=${said##*"${break}image "llamaherd/engine:llama.cpp-254c2e111fca-a371b6' '} have=${have%%"$break"*} ;;
    *) have=$(query_docker image inspect --format '{{.Id}}' llamaherd/engine:llama.cpp-254c2e111fca-a371b6 2>/dev/null) || [ $? -lt 75 ] || unread Docker ;;
    esac
    was=''
    [ ! -r /var/lib/llamaherd/images/llamaherd_engine_llama.cpp-254c2e111fca-a371b6 ] || read -r was </var/lib/llamaherd/images/llamaherd_engine_llama.cpp-254c2e111fca-a371b6
    [ -n "$have" ] && { [ -z "$was" ] || [ "$have" = "$was" ]; } && say image llamaherd/engine:llama.cpp-254c2e111fca-a371b6
fi
# Who holds the ports that are planned and are nobody's of ours. By the kernel's own lists: ss may not be installed.
for port in 8080 8081; do
<<< observe_gpu.sh:     case $ours in *" $port "*) continue ;; esac
>>> finish
} </dev/null
