{
<<< observe_gpu.sh: LC_ALL=C
>>>     of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
    say power "$(of ActiveState)" "$(of UnitFileState)" "$(of NeedDaemonReload)"
fi
for file in /run/llamaherd/gpu-power/GPU-*; do
    [ -f "$file" ] && say held "${file##*/}" $(head -n 1 "$file")
done

<<< observe_gpu.sh: finish
>>> } </dev/null
