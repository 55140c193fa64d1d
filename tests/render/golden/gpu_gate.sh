#!/bin/sh
# Waits until the cards that a server is to see answer, for $1 seconds at most; then says in a sentence what is missing.
# A server that finds no card would serve from the CPU, in silence.
#
#   gpu-gate SECONDS CARD...
<<< templates/host/gpus.sh: # What gpu-gate and gpu-check both ask about cards. A CARD is a UUID, a PCI address as nvidia-smi writes it, a number
>>>     smi --query-gpu=pci.bus_id,uuid --format=csv,noheader | grep ', GPU-' | sort

# Sets `why` to what is missing, and `patient` to whether it may come by itself.
look() {
    why='' patient=yes
    for node in $nodes; do
        if said=$({ : <"$node"; } 2>&1); then continue; fi
        look_for "$node"
        return
    done
    any=0
    for at; do
        case $at in
        *[!0-9]*) [ "$at" != any ] || any=$((any + 1)) ;;
        *) at=$((at + 1)) ;;
        esac
        case $at in
        any) enough "$any" || return ;;
        *[!0-9]*) answers "$at" || return ;;
        *) enough "$at" || return ;;
        esac
    done
}

# Why a device cannot be opened, `said` being what the shell said.
look_for() {
    if [ ! -e "$1" ]; then
        case $1 in
        */dxg) why="there is no $1: WSL gives this distribution no card, see gpuSupport in .wslconfig" ;;
        */nvidia-uvm) module=nvidia_uvm name=nvidia-uvm ;;
        *) module=nvidia name='nvidia\(-frontend\|ctl\)\{0,1\}' ;;
        esac
        [ -z "$why" ] || return
        if grep -q "^ *[0-9]* $name\$" /proc/devices; then
            why="there is no $1, although its module is loaded: \`nvidia-modprobe -c 255 -c 0; nvidia-modprobe -u -c 0\` as root makes it"
        else
            why="the module $module is not loaded: \`modprobe $module\` as root says why"
        fi
        return
    fi
    case $said in
    *"not permitted"*)
        # What a unit may open is looked up once, when it starts.
        why="$1 came after this start had begun, so that it may not be opened: the next start may" patient=no
        ;;
    *) why="$1 cannot be opened by $(id -un): $(first_line "${said##*: }")" ;;
    esac
}

# Whether a card that has a name answers.
answers() {
    said=$(smi -i "$1" --query-gpu=uuid --format=csv,noheader)
    case $said in
    GPU-*) return 0 ;;
    esac
    unanswered "card $1"
    return 1
}

# Whether there are so many cards.
enough() {
    said=$(all_cards)
    there=$(printf '%s\n' "$said" | grep -c GPU-)
    [ "$there" -lt "$1" ] || return 0
    said=$(smi -L)
    case $said in
    GPU\ *) why="there are $there cards, and at least $1 are declared" ;;
    *) unanswered "card" ;;
    esac
    return 1
}

# What stands behind nvidia-smi's answer, which is in `said`.
unanswered() {
    case $said in
    *"version mismatch"*) why="the driver's module that is loaded is not of the version of its libraries: reboot" patient=no ;;
    *"failed to run command"*) why="there is no nvidia-smi, which NVIDIA's driver brings along" patient=no ;;
    *"No devices were found"*) why="there is no $1: \`nvidia-smi -L\` shows those that are there" ;;
    '') why="nvidia-smi says nothing of $1 within 20 s" ;;
    *) why="$1 does not answer: $(first_line "$said")" ;;
    esac
}

# Of the kernel's own clock: at boot the other one may be set anew.
seconds_up() {
    read -r up _ </proc/uptime
    echo "${up%.*}"
}

most=$1
shift
nodes='/dev/nvidiactl /dev/nvidia-uvm'
! in_wsl || nodes=/dev/dxg
begun=$(seconds_up)
said_why=''
while
    look "$@"
    [ -n "$why" ]
do
    [ "$patient" = yes ] || fail "$why"
    [ $(($(seconds_up) - begun)) -lt "$most" ] || fail "$why (waited $most s)"
    [ "$why" = "$said_why" ] || echo "waiting: $why"
    said_why=$why
    sleep 1
done
