<<< arms_on_cards.sh: # Starts the arms of a comparison one at a time, as it is told on the same pipe. What serves is stopped meanwhile, and
>>>     exit 1
printf '%s since %s\n' 'tom'"'"'s' "$(date +'%F %T')" >"$locks/measure"
lacking=$(python3 -I - '{"ram": 10737418240, "gpus": [{"name": "new", "at": "GPU-5090", "need": 21609054208}, {"name": "old", "at": "GPU-3090", "need": 21609054208}]}' <<'END'
<<< templates/serve/beside-room.py: """Whether a second server can be started beside one, and connections be led to it. Ends with 1, and says why not, also
>>> sys.exit(bool(lacking))
END
) || {
    printf '%s\n' "llamaherd-arm-a-reasoner has no room beside what serves: $lacking" "  help: without \`--beside\`, llama-reasoner is stopped while it is measured" >&2
    exit 1
}
served=''
<<< arms_on_cards.sh: (umask 077 && rm -rf /run/llamaherd/arms && mkdir -p /run/llamaherd/arms) && printf '%s' "$served" >/run/llamaherd/arms/served && cat >/run/llamaherd/arms/back <<'END' || exit 1
>>> words=$!
<<< arms_on_cards.sh: start() {
>>> kill $words 2>/dev/null
