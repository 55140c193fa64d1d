{
LC_ALL=C
export LC_ALL
# A fact: its kind, and its fields. None holds a tab or a line break. It is written at once: others may be said meanwhile.
say() {
    fact=$1
    shift
    for field; do
        fact="$fact	$field"
    done
    printf '%s\n' "$fact"
}
# A text: what it is, and of what; then its lines, which may hold anything.
section() {
    printf '@ %s\t%s\n' "$1" "$2"
}
lines() {
    awk '{print "\t" $0}'
}
# After this nothing is said.
finish() {
    echo '@ end'
    exit 0
}
# What files of the login shell print comes before this, perhaps in the same line.
printf '\n@ begin\n'

# How a host really is, in texts: what we brought, then what each role asks. Changes nothing.
section brought ''
find /opt/llamaherd/libexec/fetcher/ /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /opt/llamaherd/libexec/prove /opt/llamaherd/libexec/probation ! -type d -printf '%m\t%u\t%p\n' 2>/dev/null | lines
section 'brought sums' ''
find /opt/llamaherd/libexec/fetcher/ /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /opt/llamaherd/libexec/prove /opt/llamaherd/libexec/probation -type f -exec sha256sum {} + 2>/dev/null | lines

section addresses ''
ip -o addr show 2>/dev/null | awk '{print $4}' | lines
section listening ''
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" {print $2}' | sort -u | lines

section accounts ''
{
    getent passwd
    getent group llama llama-build llama-fetch llama-chat
    awk -F : '$2 !~ /^[!*]/ { print "password " $1 }' /etc/shadow 2>/dev/null
    grep -E ':(.*,)?(llama|llama-build|llama-fetch|llama-chat)(,.*)?$' /etc/group
} | lines
section folders ''
stat -c '%a %U %n' /etc/llamaherd /etc/llamaherd/keys /opt/llamaherd /opt/llamaherd/builds /opt/llamaherd/libexec /var/lib/llamaherd 2>/dev/null | lines


section Docker ''
# Its client waits for ever at a socket that systemd holds for a daemon that does not come up.
answers=yes
timeout 20 docker version >/dev/null 2>&1 || {
    answers=no
    docker() { return 1; }
}
masked=''
for unit in docker.service docker.socket containerd.service; do
    # What a Docker that runs does without, the next boot does without.
    systemctl -q is-active docker.service && ! systemctl -q is-active $unit && continue
    case $(systemctl is-enabled $unit 2>/dev/null) in masked*) masked="$masked $unit" ;; esac
done
printf 'Answers=%s\nMasked=%s\n' $answers "$masked" | lines


# What each build says of itself, and its programs as they are now.
section build llama.cpp-254c2e111fca
cat /opt/llamaherd/builds/llama.cpp-254c2e111fca/manifest.json 2>/dev/null | lines
section programs llama.cpp-254c2e111fca
(cd /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin && sha256sum -- *) 2>/dev/null | lines


# Which files of each model are in the store.
section model /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5
find /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 -type f ! -name .manifest -printf '%s\t%P\n' 2>/dev/null | lines
section model /var/lib/llamaherd/models/local/0404040404040404
find /var/lib/llamaherd/models/local/0404040404040404 -type f ! -name .manifest -printf '%s\t%P\n' 2>/dev/null | lines


# One request. Headers come on stdin, where no process list shows them; the last line printed is the status code.
ask() {
    seconds=$1
    shift
    # No configuration of root's own, and no proxy: this host is asked.
    curl -q -sS --noproxy '*' --max-time "$seconds" -H @- -w '\n%{http_code}\n' "$@" 2>&1 | lines
}
bearer() {
    [ -n "$1" ] || return 0
    IFS= read -r key <"$1"
    printf 'Authorization: Bearer %s\n' "$key"
}

# What a process really is: the binary it was started from, its spec and its arguments.
process() {
    [ "${1:-0}" != 0 ] && [ -d "/proc/$1" ] || return 0
    printf 'sha256=%s\n' "$(sha256sum <"/proc/$1/exe" | cut -d ' ' -f 1)"
    tr '\0' '\n' <"/proc/$1/environ" | sed -n 's/^LLAMAHERD_SPEC=/spec=/p'
    sed -n 's/^Uid:[[:space:]]*\([0-9]*\).*/uid=\1/p' "/proc/$1/status"
    sed -n 's/^State:[[:space:]]*T .*/state=stopped/p' "/proc/$1/status"
    tr '\0' '\n' <"/proc/$1/cmdline" | sed 's/^/argv=/'
}

# Names of the variables that a process has otherwise than it should, on one line. $1 is the process, $2 an expression for
# the names of those that it should not have beside: empty where an image may bring its own. What it should have comes on
# stdin, NAME=VALUE.
other_variables() {
    others=$({ sed 's/^/+/' && tr '\n\0' ' \n' <"/proc/$1/environ"; } 2>/dev/null | strangers=$2 awk '
        $0 == "+" { next }
        /^\+/ { text = substr($0, 2); name = substr(text, 1, index(text, "=") - 1); wanted[name] = text; next }
        {
            name = substr($0, 1, index($0, "=") - 1)
            if (name in wanted) { if (wanted[name] == $0) delete wanted[name] }
            else if (ENVIRON["strangers"] != "" && name ~ ENVIRON["strangers"]) print name
        }
        END { for (name in wanted) print name }')
    [ -z "$others" ] || printf '%s\n' "$others" | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# Drop-ins that a unit shares with others, and what they decide of it: paths on stdin, separated by blanks.
shared() {
    sed 's/ \//\n\//g' | grep -v "/$1.d/" | while read -r file; do
        keys=$(deciding='^[ 	]*(Exec[A-Za-z]*|User|Group|DynamicUser|SupplementaryGroups|Environment|EnvironmentFile|PassEnvironment|UnsetEnvironment|RootDirectory|RootImage)[ 	]*=' awk -F = '$0 ~ ENVIRON["deciding"] { gsub(/[ \t]/, "", $1); print $1 }' "$file" | sort -u | tr '\n' ' ')
        [ -z "$keys" ] || printf '%s sets %s\n' "$file" "$keys"
    done
}

# Whose process listens at a port.
holder() {
    inode=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk -v port="$(printf ':%04X' "$1")" '$4 == "0A" && substr($2, length($2) - 4) == port { print $10; exit }')
    [ -n "$inode" ] || return 0
    pid=$(find /proc/[0-9]*/fd -lname "socket:\[$inode\]" 2>/dev/null | head -n 1 | cut -d / -f 3)
    [ -z "$pid" ] || printf '%s (process %s)\n' "$(cat "/proc/$pid/comm")" "$pid"
}

section image llamaherd/engine:llama.cpp-254c2e111fca-a371b6
docker image inspect --format '{{.Size}}' llamaherd/engine:llama.cpp-254c2e111fca-a371b6 2>/dev/null | lines

section file chat
sha256sum </etc/systemd/system/llama-chat.service 2>/dev/null | cut -d ' ' -f 1 | lines
section serving chat
systemctl show -p ActiveState -p SubState -p Result -p UnitFileState -p FragmentPath -p DropInPaths -p NeedDaemonReload llama-chat.service 2>&1 | lines
pid=$(systemctl show -P MainPID llama-chat.service 2>/dev/null)
section shared chat
systemctl show -P DropInPaths llama-chat.service 2>/dev/null | shared llama-chat.service | lines
section process chat
process "$pid" 2>&1 | lines
printf 'account=%s\n' "$(id -u llama-chat 2>/dev/null)" | lines
section variables chat
[ "${pid:-0}" = 0 ] || printf '%s\n' LLAMAHERD_SPEC=ea3d36a7a072 | other_variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | grep . | lines
[ "${pid:-0}" != 0 ] || {
    section holder chat
    holder 8080 | lines
}
section unreadable chat
for path in /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf /etc/llamaherd/keys/chat; do
    [ -e "$path" ] || { printf 'there is no %s\n' "$path" | lines && continue; }
    setpriv --reuid llama-chat --regid llama-chat --clear-groups test -r "$path" 2>/dev/null || printf 'its user may not read %s\n' "$path" | lines
done
setpriv --reuid llama-chat --regid llama-chat --clear-groups test -x /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server 2>/dev/null || printf 'its user may not run %s\n' /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin/llama-server | lines

section owners chat
find /etc/systemd/system/llama-chat.service /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin /etc/llamaherd/keys/chat /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 ! -name '.manifest*' -printf '%m\t%u\t%y\t%p\n' 2>/dev/null | lines

section health chat
health=$(ask 5 http://127.0.0.1:8080/health </dev/null)
[ -z "$health" ] || printf '%s\n' "$health"
# Who does not answer that answers nothing.
case $health in *'curl: (28)'*) ;; *)
section keyless chat
ask 5 http://127.0.0.1:8080/props </dev/null
section models chat
bearer /etc/llamaherd/keys/chat | ask 5 http://127.0.0.1:8080/v1/models
section props chat
bearer /etc/llamaherd/keys/chat | ask 5 http://127.0.0.1:8080/props
section chat chat
bearer /etc/llamaherd/keys/chat | ask 120 -H 'Content-Type: application/json' \
    -d '{"model": "gemma", "messages": [{"role": "user", "content": "The three primary colours are"}], "stream": true, "temperature": 0, "max_tokens": 64}' http://127.0.0.1:8080/v1/chat/completions
;;
esac

section file drafter
sha256sum </etc/llamaherd/compose/drafter/compose.yaml 2>/dev/null | cut -d ' ' -f 1 | lines
section serving drafter
docker inspect --type container --format \
    'Status={{.State.Status}}{{println}}Health={{with .State.Health}}{{.Status}}{{end}}{{println}}Restart={{.HostConfig.RestartPolicy.Name}}{{println}}Limits={{with .HostConfig}}PidsLimit={{json .PidsLimit}} Memory={{json .Memory}} MemorySwap={{json .MemorySwap}} MemoryReservation={{json .MemoryReservation}} NanoCpus={{json .NanoCpus}} CpuShares={{json .CpuShares}} CpuQuota={{json .CpuQuota}} CpuPeriod={{json .CpuPeriod}} BlkioWeight={{json .BlkioWeight}} CpusetCpus={{.CpusetCpus}} CpusetMems={{.CpusetMems}} RestartPolicy.Name={{.RestartPolicy.Name}} RestartPolicy.MaximumRetryCount={{.RestartPolicy.MaximumRetryCount}}{{end}}{{println}}Spec={{index .Config.Labels "llamaherd.spec"}}{{println}}ConfigFiles={{index .Config.Labels "com.docker.compose.project.config_files"}}{{println}}User={{.Config.User}}{{println}}Mounts=[{{range .Mounts}}{{if eq .Type "bind"}}[{{.RW}},{{json .Source}}],{{end}}{{end}}null]{{println}}Privileged={{json .HostConfig.Privileged}}{{println}}ReadonlyRootfs={{json .HostConfig.ReadonlyRootfs}}{{println}}NetworkMode={{json .HostConfig.NetworkMode}}{{println}}PidMode={{json .HostConfig.PidMode}}{{println}}IpcMode={{json .HostConfig.IpcMode}}{{println}}CapAdd={{json .HostConfig.CapAdd}}{{println}}CapDrop={{json .HostConfig.CapDrop}}{{println}}SecurityOpt={{json .HostConfig.SecurityOpt}}' \
    llama-drafter 2>&1 | lines
printf 'Docker=%s\n' "$(systemctl is-enabled docker.service 2>&1)" | lines
printf 'Made=%s\n' "$(cat /var/lib/llamaherd/images/llamaherd_engine_llama.cpp-254c2e111fca-a371b6 2>/dev/null)" | lines
printf 'Runs=%s\nTagged=%s\n' "$(docker inspect --type container --format '{{.Image}}' llama-drafter 2>/dev/null)" "$(docker image inspect --format '{{.Id}}' llamaherd/engine:llama.cpp-254c2e111fca-a371b6 2>/dev/null)" | lines
pid=$(docker inspect --type container --format '{{.State.Pid}}' llama-drafter 2>/dev/null)
section process drafter
process "$pid" 2>&1 | lines
section variables drafter
[ "${pid:-0}" = 0 ] || printf '%s\n' LLAMA_ARG_CORS_ORIGINS=localhost | other_variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | grep . | lines
[ "${pid:-0}" != 0 ] || {
    section holder drafter
    holder 8081 | lines
}
section unreadable drafter
for path in /var/lib/llamaherd/models/local/0404040404040404/moe.gguf; do
    [ -e "$path" ] || { printf 'there is no %s\n' "$path" | lines && continue; }
    setpriv --reuid 2093696176 --regid 2093696176 --clear-groups test -r "$path" 2>/dev/null || printf 'its user may not read %s\n' "$path" | lines
done

section owners drafter
find /etc/llamaherd/compose/drafter/compose.yaml /opt/llamaherd/builds/llama.cpp-254c2e111fca/bin /var/lib/llamaherd/models/local/0404040404040404 ! -name '.manifest*' -printf '%m\t%u\t%y\t%p\n' 2>/dev/null | lines

section health drafter
health=$(ask 5 http://127.0.0.1:8081/health </dev/null)
[ -z "$health" ] || printf '%s\n' "$health"
# Who does not answer that answers nothing.
case $health in *'curl: (28)'*) ;; *)
section models drafter
bearer '' | ask 5 http://127.0.0.1:8081/v1/models
section props drafter
bearer '' | ask 5 http://127.0.0.1:8081/props
section chat drafter
bearer '' | ask 120 -H 'Content-Type: application/json' \
    -d '{"model": "moe", "messages": [{"role": "user", "content": "The three primary colours are"}], "stream": true, "temperature": 0, "max_tokens": 64}' http://127.0.0.1:8081/v1/chat/completions
;;
esac

section listens ''
# Who listens for others than this host: port, process, program, its unit or container. Sockets are found in one go.
{
    find /proc/[0-9]*/fd -lname 'socket:*' -printf '%h %l\n' 2>/dev/null | sed 's|^/proc/\([0-9]*\)/fd socket:\[\([0-9]*\)\]$|\2 \1|'
    echo
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
} | awk '
    !NF { listed = 1; next }
    !listed { if (!($1 in pid)) pid[$1] = $2; next }
    $4 == "0A" && $2 !~ /^[0-9A-F]*7F:/ && $2 !~ /^0+1000000:/ {
        n = split($2, part, ":")
        key = part[n] " " pid[$10]
        if (!(key in had)) print part[n], (pid[$10] ? pid[$10] : "-")
        had[key]
    }' | head -n 100 | while read -r port pid; do
    comm=- of=-
    [ "$pid" = - ] || { comm=$(tr -d ' \t\n' <"/proc/$pid/comm") && of=$(sed -n 's|^0::.*/\([^/]*\)$|\1|p; s|^1:name=systemd:.*/\([^/]*\)$|\1|p' "/proc/$pid/cgroup" | head -n 1); } 2>/dev/null
    printf '%d %s %s %s\n' "0x$port" "$pid" "${comm:--}" "${of:--}"
done | sort -n | lines
section publishes ''
[ ! -e /var/run/docker.sock ] || timeout 20 docker ps --format '{{.Names}} {{.Ports}}' 2>/dev/null | head -n 100 | lines


finish
} </dev/null
