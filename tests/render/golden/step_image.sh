# The engine's image: this host's build, on a base that is made from this host's own release.
systemctl -q is-active docker || timeout 180 systemctl start docker || exit 1
if ! docker image inspect llamaherd/base:debian-13-d3e87ef709eb >/dev/null 2>&1; then
    echo "making the base image from the distribution's mirror"
    sources=$(ls /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list.d/ubuntu.sources 2>/dev/null | while read -r f; do [ -s "$f" ] && echo "$f"; done)
    log=/var/log/llamaherd/base-image.log
    mkdir -p /var/log/llamaherd
    # `extract`: only the packages named and what they need, and no script of theirs is run.
    # shellcheck disable=SC2086  # a list of files
    mmdebstrap --variant=extract --include=base-files,busybox,ca-certificates,libgomp1,libstdc++6,libssl3t64 "$(. /etc/os-release && echo "$VERSION_CODENAME")" \
        /var/lib/llamaherd/work/base.tar $sources >"$log" 2>&1 &&
        docker import - llamaherd/base:debian-13-d3e87ef709eb </var/lib/llamaherd/work/base.tar >>"$log" 2>&1
    rc=$?
    rm -f /var/lib/llamaherd/work/base.tar
    [ $rc = 0 ] || { tail -n 12 "$log" >&2; echo "cannot make llamaherd/base:debian-13-d3e87ef709eb; the whole log is $log" >&2; exit 1; }
fi
context=$(mktemp -d) && trap 'rm -rf "$context"' EXIT
base64 -d >"$context/Dockerfile" <<'END' || exit 1
base64|# The engine in a container: the build that this host made, on the libraries that it was linked against.
base64|ARG BASE
base64|FROM ${BASE}
base64|COPY bin/llama-server /usr/local/bin/llama-server
base64|ENTRYPOINT []
END
mkdir "$context/bin" && cp "/opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server" "$context/bin/" || exit 1
# The classic builder: the distribution's Docker comes without BuildKit's client, and a COPY needs no more.
DOCKER_BUILDKIT=0 docker build -q --build-arg BASE=llamaherd/base:debian-13-d3e87ef709eb -t llamaherd/engine:llama.cpp-254c2e111fca-a371b6 "$context" >"$context/log" 2>&1 ||
    { tail -n 12 "$context/log" >&2; echo "cannot make image llamaherd/engine:llama.cpp-254c2e111fca-a371b6" >&2; exit 1; }
# A name can be given to any image: which one this is, is kept.
mkdir -p /var/lib/llamaherd/images &&
    docker image inspect --format '{{.Id}}' llamaherd/engine:llama.cpp-254c2e111fca-a371b6 >/var/lib/llamaherd/images/llamaherd_engine_llama.cpp-254c2e111fca-a371b6
