# What gpu-gate and gpu-check both ask about cards. A CARD is a UUID, a PCI address as nvidia-smi writes it, a number
# in the order of addresses, or `any`: one of all that are there, another one for every `any`.
LC_ALL=C
export LC_ALL
# Under WSL the driver is Windows', and its programs are on no PATH.
PATH=$PATH:/usr/lib/wsl/lib

fail() {
    echo "$*" >&2
    exit 1
}

first_line() {
    printf '%s\n' "$1" | grep . | head -n 1
}

# A driver that hangs must not hang the start.
smi() {
    timeout 20 nvidia-smi "$@" 2>&1
}

in_wsl() {
    grep -qi microsoft /proc/sys/kernel/osrelease
}

# A line for each card: PCI address, comma, UUID.
all_cards() {
    smi --query-gpu=pci.bus_id,uuid --format=csv,noheader | grep ', GPU-' | sort
}
