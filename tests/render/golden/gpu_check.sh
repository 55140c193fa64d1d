#!/bin/sh
# Whether a server is on its cards. One that could not start CUDA says so in a line of its log and serves from the CPU,
# healthy, at a tenth of the speed (ggml-org/llama.cpp#27923).
#
#   gpu-check every|one LOG PIDS CARD...   PIDS are its processes, in one word; LOG is the command that shows its log.
#                                          `one`: of several cards it may use a single one.
<<< gpu_gate.sh: # What gpu-gate and gpu-check both ask about cards. A CARD is a UUID, a PCI address as nvidia-smi writes it, a number
>>>     smi --query-gpu=pci.bus_id,uuid --format=csv,noheader | grep ', GPU-' | sort
# The UUIDs of the cards that the driver lists our processes on; fails where that list cannot tell.
listed() {
    # The driver knows nothing of PID namespaces (NVIDIA/nvidia-docker#179, #1483): its ids are those of the first one,
    # whose inode is this in every Linux. Under WSL they are those of Windows.
    [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ] && ! in_wsl || return 1
    said=$(smi --query-compute-apps=pid,gpu_uuid --format=csv,noheader) || return 1
    printf '%s\n' "$said" | awk -v pids="$pids" -F ', *' '
        BEGIN { split(pids, list, " "); for (i in list) ours[list[i]] = 1 }
        $1 ~ /^[0-9]+$/ && $2 ~ /^GPU-/ { if ($1 in ours) { print $2; found = 1 }; next }
        NF { unclear = 1 }
        END { exit (!found && unclear) }'
}

# The same by the devices that our processes hold open. It is less sure: a process that counts cards opens all of them
# for a moment. That it holds nvidia-uvm as well tells CUDA from a mere look.
opened() {
    held=$(for pid in $pids; do ls -l "/proc/$pid/fd" 2>/dev/null; done)
    [ -n "$held" ] || return 1
    if in_wsl; then
        # One device for all cards: whichever they are, it is on them.
        ! printf '%s\n' "$held" | grep -q ' -> /dev/dxg$' || printf '%s\n' "$cards" | sed 's/.*, //'
        return 0
    fi
    ls /proc/driver/nvidia/gpus/*/information >/dev/null 2>&1 || return 1
    printf '%s\n' "$held" | grep -q ' -> /dev/nvidia-uvm$' || return 0
    for file in /proc/driver/nvidia/gpus/*/information; do
        minor=$(sed -n 's/^Device Minor:[[:space:]]*//p' "$file")
        printf '%s\n' "$held" | grep -q " -> /dev/nvidia$minor\$" || continue
        address=${file%/information}
        # nvidia-smi writes the domain with eight digits, the kernel with four.
        printf '%s\n' "$cards" | grep -i "${address##*/}, " | sed 's/.*, //'
    done
}

# The UUID of a card; of an `any`, the first that no other one has taken.
which_card() {
    case $1 in
    any) printf '%s\n' "$on" | awk -v taken="$taken" '/^GPU-/ && index(taken, $1 " ") == 0 { print; exit }' ;;
    *[!0-9]*) printf '%s\n' "$cards" | awk -v at="$1" -F ', ' 'tolower(at) == tolower($1) || tolower(at) == tolower($2) { print $2 }' ;;
    *) printf '%s\n' "$cards" | awk -v at="$1" -F ', ' 'NR == at + 1 { print $2 }' ;;
    esac
}

how=$1 log=$2
pids=$(printf '%s' "$3" | tr -s ' ,\n' ' ')
shift 3
for pid in $pids; do
    [ -d "/proc/$pid" ] || fail "process $pid is gone: see \`$log\`"
done
# A server of several models runs each in a process of its own.
for pid in $pids; do
    children=$(cat "/proc/$pid/task/"*/children 2>/dev/null)
    pids="$pids${children:+ ${children% }}"
done
cards=$(all_cards)
if ! on=$(listed) && ! on=$(opened); then
    echo "whether process $pids is on its cards cannot be seen here: nvidia-smi says $(first_line "$(smi -L)")" >&2
    exit 0
fi
taken='' lacking='' some=no
for at; do
    uuid=$(which_card "$at")
    if [ -n "$uuid" ] && printf '%s\n' "$on" | grep -qx "$uuid"; then
        some=yes taken="$taken$uuid "
    else
        lacking="$lacking $at"
    fi
done
[ -n "$lacking" ] || exit 0
[ "$how $some" != 'one yes' ] || exit 0
instead=$(printf '%s\n' "$on" | sort -u | tr '\n' ' ')
if [ -n "${instead% }" ]; then
    fail "the server is not on card$lacking, but on ${instead% }: does CUDA see that card? \`$log | grep -i cuda\` shows it"
fi
fail "the server is on no card, and would serve from the CPU: \`$log | grep -i cuda\` shows why CUDA did not start"
