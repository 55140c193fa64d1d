{
<<< inspect_gpu.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# What servers would take by the builds of llama.cpp on a host, in texts. Changes nothing; `engine_estimate.py` reads it.
umask 022
ulimit -c 0
# The tool really allocates recurrent state for a moment. If memory runs short, it dies, and no server.
echo 1000 >/proc/self/oom_score_adj

uid=$(id -u llama 2>/dev/null || id -u nobody)
gid=$(id -g llama 2>/dev/null || id -g nobody)

# Without this folder nothing is built here either. What a run that was killed has left goes after an hour.
work=''
trap '[ -z "$work" ] || rm -rf "$work"' EXIT
trap 'exit 1' HUP INT PIPE TERM
if [ -d /var/lib/llamaherd ]; then
    find /var/lib/llamaherd -maxdepth 1 -name 'asked.*' -mmin +60 -exec rm -rf {} +
    work=$(mktemp -d /var/lib/llamaherd/asked.XXXXXX) && chown "$uid:$gid" "$work" || exit 1
fi

# $1 path, $2 size: a file that is a header, which comes on stdin, and a hole.
hollow() {
    mkdir -p "$(dirname "$1")" && base64 -d | gzip -d >"$1" && truncate -s "$2" "$1"
}

# $1 instance, $2 build, $3 model or nothing, then the environment, the tool and its arguments
ask() {
    name=$1 build=$2 model=$3
    shift 3
    section state "$name"
    if ! [ -f "$build/manifest.json" ] || ! [ -x "$build/bin/llama-fit-params" ]; then
        echo unbuilt | lines
        return
    fi
    if [ -z "$model" ]; then
        echo absent | lines
        return
    fi
    timeout -k 5 120 setpriv --reuid "$uid" --regid "$gid" --clear-groups --no-new-privs \
        env -i PATH="$PATH" XDG_CONFIG_HOME=/nonexistent "$@" >"$work/figures" 2>"$work/said"
    echo $? | lines
    section figures "$name"
    lines <"$work/figures"
    section said "$name"
    lines <"$work/said"
}

# 35b: as the store has it, if its manifest says of every file that it is whole
model1=''
if cd /var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc 2>/dev/null &&
    grep -qsxF "$(stat -c '%s	%.9Y	1111111111111111111111111111111111111111111111111111111111111111	%n' UD-Q4_K_XL/35b-00001-of-00002.gguf 2>/dev/null)" .manifest &&
    grep -qsxF "$(stat -c '%s	%.9Y	2222222222222222222222222222222222222222222222222222222222222222	%n' UD-Q4_K_XL/35b-00002-of-00002.gguf 2>/dev/null)" .manifest; then
    model1=/var/lib/llamaherd/models/unsloth/Qwen3.6-35B-A3B-MTP-GGUF/dcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdc/UD-Q4_K_XL/35b-00001-of-00002.gguf
fi
# gemma: as the store has it, if its manifest says of every file that it is whole
model2=''
if cd /var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5 2>/dev/null &&
    grep -qsxF "$(stat -c '%s	%.9Y	a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5	%n' gemma.gguf 2>/dev/null)" .manifest; then
    model2=/var/lib/llamaherd/models/local/a5a5a5a5a5a5a5a5/gemma.gguf
fi
cd /

ask reasoner /opt/llamaherd/builds/llama.cpp-1e5a4c321023 "$model1" CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-5090,GPU-3090 /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-fit-params -m "$model1" -fitp on -c 262144 -np 1 -ctk f16 -ctv f16 -b 2048 -ub 512 -fa on --no-repack -ngl all -sm layer -mg 0
ask boxed /opt/llamaherd/builds/llama.cpp-1e5a4c321023 "$model2" CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=GPU-5090 /opt/llamaherd/builds/llama.cpp-1e5a4c321023/bin/llama-fit-params -m "$model2" -fitp on -c 4096 -np 1 -ctk f16 -ctv f16 -b 2048 -ub 512 -fa on --no-repack -ngl all

finish
} </dev/null
