{
<<< inspect_gpu.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# How a host really is, in texts, for roles that need more than programs. Changes nothing.
# Docker's client waits without end at a socket that systemd holds for a daemon that does not come up.
docker() { timeout 20 docker "$@"; }

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

<<< templates/serve/started-variables.sh: # Names of the variables that a process has otherwise than it should, on one line. $1 is the process, $2 an expression for
>>>     [ -z "$others" ] || printf '%s\n' "$others" | sort -u | tr '\n' ' ' | sed 's/ $//'

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

section image llamaherd/engine:llama.cpp-1e5a4c321023-545575
docker image inspect --format '{{.Size}}' llamaherd/engine:llama.cpp-1e5a4c321023-545575 2>/dev/null | lines

section file boxed
sha256sum </etc/llamaherd/compose/boxed/compose.yaml 2>/dev/null | cut -d ' ' -f 1 | lines
section serving boxed
docker inspect --type container --format \
    'Status={{.State.Status}}{{println}}Health={{with .State.Health}}{{.Status}}{{end}}{{println}}Restart={{.HostConfig.RestartPolicy.Name}}{{println}}Limits={{with .HostConfig}}PidsLimit={{json .PidsLimit}} Memory={{json .Memory}} MemorySwap={{json .MemorySwap}} MemoryReservation={{json .MemoryReservation}} NanoCpus={{json .NanoCpus}} CpuShares={{json .CpuShares}} CpuQuota={{json .CpuQuota}} CpuPeriod={{json .CpuPeriod}} BlkioWeight={{json .BlkioWeight}} CpusetCpus={{.CpusetCpus}} CpusetMems={{.CpusetMems}} RestartPolicy.Name={{.RestartPolicy.Name}} RestartPolicy.MaximumRetryCount={{.RestartPolicy.MaximumRetryCount}}{{end}}{{println}}Spec={{index .Config.Labels "llamaherd.spec"}}{{println}}ConfigFiles={{index .Config.Labels "com.docker.compose.project.config_files"}}{{println}}User={{.Config.User}}{{println}}Mounts=[{{range .Mounts}}{{if eq .Type "bind"}}[{{.RW}},{{json .Source}}],{{end}}{{end}}null]{{println}}Privileged={{json .HostConfig.Privileged}}{{println}}ReadonlyRootfs={{json .HostConfig.ReadonlyRootfs}}{{println}}NetworkMode={{json .HostConfig.NetworkMode}}{{println}}PidMode={{json .HostConfig.PidMode}}{{println}}IpcMode={{json .HostConfig.IpcMode}}{{println}}CapAdd={{json .HostConfig.CapAdd}}{{println}}CapDrop={{json .HostConfig.CapDrop}}{{println}}SecurityOpt={{json .HostConfig.SecurityOpt}}' \
    llama-boxed 2>&1 | lines
printf 'Docker=%s\n' "$(systemctl is-enabled docker.service 2>&1)" | lines
printf 'Made=%s\n' "$(cat /var/lib/llamaherd/images/llamaherd_engine_llama.cpp-1e5a4c321023-545575 2>/dev/null)" | lines
printf 'Runs=%s\nTagged=%s\n' "$(docker inspect --type container --format '{{.Image}}' llama-boxed 2>/dev/null)" "$(docker image inspect --format '{{.Id}}' llamaherd/engine:llama.cpp-1e5a4c321023-545575 2>/dev/null)" | lines
pid=$(docker inspect --type container --format '{{.State.Pid}}' llama-boxed 2>/dev/null)
section process boxed
process "$pid" 2>&1 | lines
section variables boxed
[ "${pid:-0}" = 0 ] || printf '%s\n' LLAMA_ARG_CORS_ORIGINS=localhost CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-5090 | other_variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | grep . | lines
[ "${pid:-0}" != 0 ] || {
    section holder boxed
    holder 8004 | lines
}
section unreadable boxed
for path in /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf; do
    [ -e "$path" ] || { printf 'there is no %s\n' "$path" | lines && continue; }
    setpriv --reuid 2043340793 --regid 2043340793 --clear-groups test -r "$path" 2>/dev/null || printf 'its user may not read %s\n' "$path" | lines
done

section owners boxed
find /etc/llamaherd/compose/boxed/compose.yaml /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 ! -name '.manifest*' -printf '%m\t%u\t%y\t%p\n' 2>/dev/null | lines

section health boxed
health=$(ask 5 http://127.0.0.1:8004/health </dev/null)
[ -z "$health" ] || printf '%s\n' "$health"
# Who does not answer that answers nothing.
case $health in *'curl: (28)'*) ;; *)
section models boxed
bearer '' | ask 5 http://127.0.0.1:8004/v1/models
section props boxed
bearer '' | ask 5 http://127.0.0.1:8004/props
section chat boxed
bearer '' | ask 120 -H 'Content-Type: application/json' \
    -d '{"model": "gemma", "messages": [{"role": "user", "content": "The three primary colours are"}], "stream": true, "temperature": 0, "max_tokens": 64}' http://127.0.0.1:8004/v1/chat/completions
;;
esac

section file reasoner
sha256sum </etc/systemd/system/llama-reasoner.service 2>/dev/null | cut -d ' ' -f 1 | lines
section serving reasoner
systemctl show -p ActiveState -p SubState -p Result -p UnitFileState -p FragmentPath -p DropInPaths -p NeedDaemonReload llama-reasoner.service 2>&1 | lines
pid=$(systemctl show -P MainPID llama-reasoner.service 2>/dev/null)
section shared reasoner
systemctl show -P DropInPaths llama-reasoner.service 2>/dev/null | shared llama-reasoner.service | lines
section process reasoner
process "$pid" 2>&1 | lines
printf 'account=%s\n' "$(id -u llama-reasoner 2>/dev/null)" | lines
section variables reasoner
[ "${pid:-0}" = 0 ] || printf '%s\n' LLAMAHERD_SPEC=9413e80713cb LLAMA_ARG_CORS_ORIGINS=localhost CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-5090,GPU-3090 | other_variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | grep . | lines
[ "${pid:-0}" != 0 ] || {
    section holder reasoner
    holder 8001 | lines
}
section unreadable reasoner
for path in /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00001-of-00002.gguf; do
    [ -e "$path" ] || { printf 'there is no %s\n' "$path" | lines && continue; }
    setpriv --reuid llama-reasoner --regid llama-reasoner --clear-groups test -r "$path" 2>/dev/null || printf 'its user may not read %s\n' "$path" | lines
done
setpriv --reuid llama-reasoner --regid llama-reasoner --clear-groups test -x /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server 2>/dev/null || printf 'its user may not run %s\n' /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-server | lines

section owners reasoner
find /etc/systemd/system/llama-reasoner.service /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc ! -name '.manifest*' -printf '%m\t%u\t%y\t%p\n' 2>/dev/null | lines

section health reasoner
health=$(ask 5 http://127.0.0.1:8001/health </dev/null)
[ -z "$health" ] || printf '%s\n' "$health"
# Who does not answer that answers nothing.
case $health in *'curl: (28)'*) ;; *)
section models reasoner
bearer '' | ask 5 http://127.0.0.1:8001/v1/models
section props reasoner
bearer '' | ask 5 http://127.0.0.1:8001/props
section chat reasoner
bearer '' | ask 120 -H 'Content-Type: application/json' \
    -d '{"model": "35b", "messages": [{"role": "user", "content": "The three primary colours are"}], "stream": true, "temperature": 0, "max_tokens": 64}' http://127.0.0.1:8001/v1/chat/completions
;;
esac

section file small
sha256sum </etc/llamaherd/compose/small/compose.yaml 2>/dev/null | cut -d ' ' -f 1 | lines
section serving small
docker inspect --type container --format \
    'Status={{.State.Status}}{{println}}Health={{with .State.Health}}{{.Status}}{{end}}{{println}}Restart={{.HostConfig.RestartPolicy.Name}}{{println}}Limits={{with .HostConfig}}PidsLimit={{json .PidsLimit}} Memory={{json .Memory}} MemorySwap={{json .MemorySwap}} MemoryReservation={{json .MemoryReservation}} NanoCpus={{json .NanoCpus}} CpuShares={{json .CpuShares}} CpuQuota={{json .CpuQuota}} CpuPeriod={{json .CpuPeriod}} BlkioWeight={{json .BlkioWeight}} CpusetCpus={{.CpusetCpus}} CpusetMems={{.CpusetMems}} RestartPolicy.Name={{.RestartPolicy.Name}} RestartPolicy.MaximumRetryCount={{.RestartPolicy.MaximumRetryCount}}{{end}}{{println}}Spec={{index .Config.Labels "llamaherd.spec"}}{{println}}ConfigFiles={{index .Config.Labels "com.docker.compose.project.config_files"}}{{println}}User={{.Config.User}}{{println}}Mounts=[{{range .Mounts}}{{if eq .Type "bind"}}[{{.RW}},{{json .Source}}],{{end}}{{end}}null]{{println}}Privileged={{json .HostConfig.Privileged}}{{println}}ReadonlyRootfs={{json .HostConfig.ReadonlyRootfs}}{{println}}NetworkMode={{json .HostConfig.NetworkMode}}{{println}}PidMode={{json .HostConfig.PidMode}}{{println}}IpcMode={{json .HostConfig.IpcMode}}{{println}}CapAdd={{json .HostConfig.CapAdd}}{{println}}CapDrop={{json .HostConfig.CapDrop}}{{println}}SecurityOpt={{json .HostConfig.SecurityOpt}}' \
    llama-small 2>&1 | lines
printf 'Docker=%s\n' "$(systemctl is-enabled docker.service 2>&1)" | lines
pid=$(docker inspect --type container --format '{{.State.Pid}}' llama-small 2>/dev/null)
section process small
process "$pid" 2>&1 | lines
section variables small
[ "${pid:-0}" = 0 ] || printf '%s\n' LLAMA_ARG_CORS_ORIGINS=localhost | other_variables "$pid" '' | grep . | lines
[ "${pid:-0}" != 0 ] || {
    section holder small
    holder 8003 | lines
}
section unreadable small
for path in /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf; do
    [ -e "$path" ] || { printf 'there is no %s\n' "$path" | lines && continue; }
    setpriv --reuid 2102488902 --regid 2102488902 --clear-groups test -r "$path" 2>/dev/null || printf 'its user may not read %s\n' "$path" | lines
done

section owners small
find /etc/llamaherd/compose/small/compose.yaml /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 ! -name '.manifest*' -printf '%m\t%u\t%y\t%p\n' 2>/dev/null | lines

section health small
health=$(ask 5 http://127.0.0.1:8003/health </dev/null)
[ -z "$health" ] || printf '%s\n' "$health"
# Who does not answer that answers nothing.
case $health in *'curl: (28)'*) ;; *)
section models small
bearer '' | ask 5 http://127.0.0.1:8003/v1/models
section props small
bearer '' | ask 5 http://127.0.0.1:8003/props
section chat small
bearer '' | ask 120 -H 'Content-Type: application/json' \
    -d '{"model": "gemma", "messages": [{"role": "user", "content": "The three primary colours are"}], "stream": true, "temperature": 0, "max_tokens": 64}' http://127.0.0.1:8003/v1/chat/completions
;;
esac

section file worker
sha256sum </etc/systemd/system/llama-worker.service 2>/dev/null | cut -d ' ' -f 1 | lines
section serving worker
systemctl show -p ActiveState -p SubState -p Result -p UnitFileState -p FragmentPath -p DropInPaths -p NeedDaemonReload llama-worker.service 2>&1 | lines
pid=$(systemctl show -P MainPID llama-worker.service 2>/dev/null)
section shared worker
systemctl show -P DropInPaths llama-worker.service 2>/dev/null | shared llama-worker.service | lines
section process worker
process "$pid" 2>&1 | lines
printf 'account=%s\n' "$(id -u llama-worker 2>/dev/null)" | lines
section variables worker
[ "${pid:-0}" = 0 ] || printf '%s\n' LLAMAHERD_SPEC=3ed70d6043e8 LLAMA_ARG_THREADS_HTTP=1024 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-3090 | other_variables "$pid" '^(LLAMA|GGML|IK|CUDA|NCCL|OMP|GOMP|KMP|LD|HF)_' | grep . | lines
[ "${pid:-0}" != 0 ] || {
    section holder worker
    holder 8002 | lines
}
section unreadable worker
for path in /opt/llamaherd/builds/ik_llama.cpp-e27c3d4e93b7/bin/llama-server /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00001-of-00002.gguf; do
    [ -e "$path" ] || { printf 'there is no %s\n' "$path" | lines && continue; }
    setpriv --reuid llama-worker --regid llama-worker --clear-groups test -r "$path" 2>/dev/null || printf 'its user may not read %s\n' "$path" | lines
done
setpriv --reuid llama-worker --regid llama-worker --clear-groups test -x /opt/llamaherd/builds/ik_llama.cpp-e27c3d4e93b7/bin/llama-server 2>/dev/null || printf 'its user may not run %s\n' /opt/llamaherd/builds/ik_llama.cpp-e27c3d4e93b7/bin/llama-server | lines

section owners worker
find /etc/systemd/system/llama-worker.service /opt/llamaherd/builds/ik_llama.cpp-e27c3d4e93b7/bin /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc ! -name '.manifest*' -printf '%m\t%u\t%y\t%p\n' 2>/dev/null | lines

section health worker
health=$(ask 5 http://127.0.0.1:8002/health </dev/null)
[ -z "$health" ] || printf '%s\n' "$health"
# Who does not answer that answers nothing.
case $health in *'curl: (28)'*) ;; *)
section models worker
bearer '' | ask 5 http://127.0.0.1:8002/v1/models
section props worker
bearer '' | ask 5 http://127.0.0.1:8002/props
section chat worker
bearer '' | ask 120 -H 'Content-Type: application/json' \
    -d '{"model": "35b", "messages": [{"role": "user", "content": "The three primary colours are"}], "stream": true, "temperature": 0, "max_tokens": 64}' http://127.0.0.1:8002/v1/chat/completions
;;
esac

# Who is on which card: after the chats, when servers hold all that they will. Asked of the driver, and of each process.
PATH=$PATH:/usr/lib/wsl/lib
section gpus ''
timeout 30 nvidia-smi --query-gpu=pci.bus_id,uuid --format=csv,noheader 2>&1 | lines
section 'gpu processes' ''
timeout 30 nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory --format=csv,noheader,nounits 2>&1 | lines
section 'gpu minors' ''
grep -H '^Device Minor' /proc/driver/nvidia/gpus/*/information 2>/dev/null | lines
section namespace ''
readlink /proc/self/ns/pid | lines
section kernel ''
uname -r | lines
section 'on cards' boxed
pid=$(docker inspect --type container --format '{{.State.Pid}}' llama-boxed 2>/dev/null)
# A container's processes are those of its PID namespace.
space=$(readlink "/proc/${pid:-0}/ns/pid") && space=${space#pid:?} &&
    pid=$(find /proc/[0-9]*/ns/pid -maxdepth 0 -lname "pid:?${space%?}?" 2>/dev/null | cut -d / -f 3)
for each in $pid; do
    [ "$each" != 0 ] && [ -d "/proc/$each" ] || continue
    printf 'pid=%s\n' "$each"
    ls -l "/proc/$each/fd" 2>/dev/null | sed -n 's/.* -> \(\/dev\/\(nvidia\|dxg\).*\)/device=\1/p' | sort -u
done | lines
section 'on cards' reasoner
pid=$(systemctl show -P MainPID llama-reasoner.service 2>/dev/null)
for each in $pid; do
    [ "$each" != 0 ] && [ -d "/proc/$each" ] || continue
    printf 'pid=%s\n' "$each"
    ls -l "/proc/$each/fd" 2>/dev/null | sed -n 's/.* -> \(\/dev\/\(nvidia\|dxg\).*\)/device=\1/p' | sort -u
done | lines
section 'on cards' worker
pid=$(systemctl show -P MainPID llama-worker.service 2>/dev/null)
for each in $pid; do
    [ "$each" != 0 ] && [ -d "/proc/$each" ] || continue
    printf 'pid=%s\n' "$each"
    ls -l "/proc/$each/fd" 2>/dev/null | sed -n 's/.* -> \(\/dev\/\(nvidia\|dxg\).*\)/device=\1/p' | sort -u
done | lines
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
