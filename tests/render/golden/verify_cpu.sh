{
<<< verify_gpu.sh: LC_ALL=C
>>>     [ -z "$pid" ] || printf '%s (process %s)\n' "$(cat "/proc/$pid/comm")" "$pid"
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

<<< verify_gpu.sh: section listens ''
>>> } </dev/null
