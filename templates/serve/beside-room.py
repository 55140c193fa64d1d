"""Whether a second server can be started beside one, and connections be led to it. Ends with 1, and says why not, also
where that is not certain."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

NFT = "/usr/sbin/nft"
KIB, MIB = 1 << 10, 1 << 20


def main(asked: dict[str, Any]) -> str:
    try:
        return ("port" in asked and elsewhere(asked)) or ram(asked["ram"]) or gpus(asked)
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        return f"this host does not say ({error})"


def elsewhere(asked: dict[str, Any]) -> str:
    """Why it cannot serve at a port of its own, in the place of the other."""
    return led(asked["for_others"]) or held(asked["listen"], asked["port"])


def led(for_others: bool) -> str:
    """Why connections cannot be led to another port."""
    if not os.access(NFT, os.X_OK):
        return "there is no nft (package nftables) to lead connections to it"
    rules = told([NFT, "list", "ruleset"])
    older = Path("/proc/net/ip_tables_names")
    if for_others and ("hook input" in rules or (older.exists() and older.read_text().strip())):
        return "a firewall here filters by port"
    return ""


def held(listen: str, port: int) -> str:
    """Why it cannot listen."""
    with socket.socket(socket.AF_INET6 if ":" in listen else socket.AF_INET) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((listen, port))
        except OSError as error:
            return f"its port {port} cannot be had ({error.strerror})"
    return ""


def ram(need: int) -> str:
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    free = next(int(words[1]) for words in lines if words[0] == "MemAvailable:") * KIB
    return f"{gb(free)} of RAM are free, and it takes {gb(need)} with what the system needs" if free < need else ""


def gpus(asked: dict[str, Any]) -> str:
    if not asked["gpus"]:
        return ""
    query = ["nvidia-smi", "--query-gpu=pci.bus_id,uuid,memory.free", "--format=csv,noheader,nounits"]
    cards = sorted(line.split(", ") for line in told(query).splitlines() if line.strip())
    for each in asked["gpus"]:
        at = each["at"].upper()
        by_name = {name.upper(): card for card in cards for name in card[:2]}
        card = cards[int(at)] if at.isdigit() else by_name[at]
        if (free := int(card[2]) * MIB) < each["need"]:
            return f"GPU {each['name']} has {gb(free)} free, and it takes {gb(each['need'])}"
    return ""


def told(argv: list[str]) -> str:
    ended = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=True)
    return ended.stdout


def gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB"


lacking = main(json.loads(sys.argv[1]))
sys.stdout.write(lacking)
sys.exit(bool(lacking))
