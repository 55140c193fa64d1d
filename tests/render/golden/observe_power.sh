{
<<< observe_gpu.sh: LC_ALL=C
>>> # All in two calls: a process each would be most of what a look costs.
set -- /opt/llamaherd/libexec/wait-healthy /opt/llamaherd/libexec/started /opt/llamaherd/libexec/gpu-gate /opt/llamaherd/libexec/gpu-check /etc/systemd/system/docker.service.d/llamaherd-cards.conf /opt/llamaherd/libexec/gpu-fans /opt/llamaherd/libexec/gpu-power /etc/llamaherd/gpu-power /etc/systemd/system/llamaherd-gpu-power.service /etc/apt/preferences.d/llamaherd-cuda /etc/apt/preferences.d/llamaherd-container-toolkit /etc/llamaherd/compose/boxed/compose.yaml /etc/systemd/system/llama-reasoner.service /etc/llamaherd/compose/small/compose.yaml /etc/systemd/system/llama-worker.service /etc/apt/keyrings/llamaherd-nvidia.asc /etc/apt/sources.list.d/llamaherd-nvidia.sources /etc/apt/keyrings/llamaherd-nvidia-container-toolkit.asc /etc/apt/sources.list.d/llamaherd-nvidia-container-toolkit.sources
<<< observe_gpu.sh: stat --printf 'file\t%n\t%a %u %U %.Y\n' "$@" 2>/dev/null
>>>     of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    say power "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)"
fi
for file in /run/llamaherd/gpu-power/GPU-*; do
    [ -f "$file" ] && say held "${file##*/}" $(head -n 1 "$file")
done

<<< observe_gpu.sh: finish
>>> finish
} </dev/null
