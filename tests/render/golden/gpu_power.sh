#!/bin/sh
# Holds cards to the power limits, clocks and fan speeds of a table, and lets go of what it held and the table no longer
# has.
#
#   gpu-power hold TABLE   TABLE has a line a card: its name; which one (UUID, PCI address, or number in the order of
#                          addresses); watts; lowest,highest MHz; percent. `-` stands where nothing is declared.
#   gpu-power release      Everything that was held goes back to the cards' defaults.
#
# No query tells which clocks are locked. So there is a note for each card, named by its UUID: the limit, the clocks,
# persistence, the fans' speed. It is unknown (?) while the card is changed, so that a run which is killed leaves no
# wrong one.
LC_ALL=C
export LC_ALL
notes=${RUNTIME_DIRECTORY:-/run/llamaherd/gpu-power}
failed=0

fail() {
    failed=1
    echo "$*" >&2
}

# A driver that hangs must not hang the boot.
smi() {
    timeout 60 nvidia-smi "$@" 2>&1
}

# What a card is set to now, in whole watts; `-` stands for what it does not tell.
look() {
    read -r _ mode now default least most <<END
$(smi -i "$1" --format=csv,noheader,nounits \
        --query-gpu=uuid,persistence_mode,power.limit,power.default_limit,power.min_limit,power.max_limit |
        awk -F ', ' '/^GPU-/ {print $1, $2 == "Disabled" ? "off" : "on", w($3), w($4), w($5), w($6)}
            function w(watts) {return watts ~ /^[0-9]/ ? int(watts) : "-"}')
END
    now=${now:--} default=${default:--} least=${least:--} most=${most:--}
}

# Whether the card is set to so many watts, but for rounding.
set_to() {
    [ "$now" != - ] && [ $((now - $1)) -ge -1 ] && [ $((now - $1)) -le 1 ]
}

# The UUID of the card that a table means; $cards are all, by PCI address.
which_card() {
    case $1 in
    *[!0-9]*) printf '%s\n' "$cards" | awk -v at="$1" -F ', ' 'tolower(at) == tolower($1) || tolower(at) == tolower($2) {print $2}' ;;
    *) printf '%s\n' "$cards" | awk -v at="$1" -F ', ' 'NR == at + 1 {print $2}' ;;
    esac
}

# nvidia-smi ends with 0 when a card cannot do what was asked: "... is not supported ... Treating as warning".
unsupported() {
    case $1 in
    *"not supported"*) true ;;
    *) false ;;
    esac
}

first_line() {
    printf '%s\n' "$1" | grep . | head -n 1
}

# name uuid watts clocks, `limit` being what was held: sets it to what is held now.
hold_limit() {
    set_to "$3" && limit=$3 && return
    if [ "$least" != - ] && [ "$most" != - ] && { [ "$3" -lt "$least" ] || [ "$3" -gt "$most" ]; }; then
        fail "card $1 takes a power limit of $least to $most W, not $3 W"
        return
    fi
    said=$(smi -i "$2" -pl "$3")
    look "$2"
    if set_to "$3"; then
        limit=$3
        echo "card $1 is held to $3 W"
    elif ! unsupported "$said"; then
        fail "card $1 is not held to $3 W: $(first_line "$said")"
    elif [ "$4" = - ]; then
        fail "card $1 takes no power limit; declare its \`clocks\`, to which it is held instead"
    else
        limit=refused
        echo "card $1 takes no power limit; its clocks are held instead"
    fi
}

# name uuid clocks, `clocks` being what was held: sets it to what is held now.
hold_clocks() {
    if said=$(smi -i "$2" -lgc "$3") && ! unsupported "$said"; then
        clocks=$3
        echo "card $1 is held to $3 MHz"
    else
        fail "card $1 is not held to $3 MHz: $(first_line "$said")"
    fi
}

# name uuid: no limit of ours any more.
free_limit() {
    case $limit in
    - | refused) limit=- && return ;;
    esac
    # Nothing to go back to: a card that tells no limit takes none.
    if [ "$default" = - ] || set_to "$default"; then
        limit=-
        return
    fi
    said=$(smi -i "$2" -pl "$default")
    look "$2"
    if set_to "$default"; then
        limit=-
        echo "card $1 has its default limit again, $default W"
    elif unsupported "$said"; then
        limit=-
    else
        fail "card $1 does not go back to its default limit: $(first_line "$said")"
    fi
}

# name uuid: no clocks of ours any more.
free_clocks() {
    [ "$clocks" = - ] && return
    if said=$(smi -i "$2" -rgc) || unsupported "$said"; then
        clocks=-
        echo "card $1 has its own clocks again"
    else
        fail "card $1 does not go back to its own clocks: $(first_line "$said")"
    fi
}

<<< templates/power/fans.sh: # uuid, and percent or `auto`: tells all fans of a card. Its exit codes say what became of it.
>>>     *) fail "the fans of card $1 do not go back to the driver's own control: $(first_line "$said")" ;;

# Without persistence a card forgets its limit as soon as nothing uses it. Ubuntu starts the daemon with it off.
keep_loaded() {
    persistence=on
    [ "$mode" = off ] || return
    said=$(smi -i "$2" -pm 1)
    look "$2"
    if [ "$mode" = off ]; then
        persistence=refused
        echo "card $1 forgets its limit when nothing uses it: $(first_line "$said")"
    fi
}

# uuid percent: what was held of a card, which is unknown from now on, and what it is set to. Fans of which nothing was
# ever declared are known all the time: whoever else sets them is not to be disturbed.
begin() {
    look "$1"
    limit=- clocks=- persistence=- fans=-
    if [ -f "$notes/$1" ]; then
        read -r limit clocks persistence fans <"$notes/$1"
        # Of before there were fans, a note has three words. One that has fewer was cut off.
        [ -n "$persistence" ] || fans='?'
        limit=${limit:-?} clocks=${clocks:-?} fans=${fans:--}
    fi
    case "$fans $2" in
    '- -') echo '? ? ? -' ;;
    *) echo '? ? ? ?' ;;
    esac >"$notes/$1"
}

note() {
    echo "$limit $clocks $persistence $fans" >"$notes/$1"
}

hold() {
    cards=$(smi --query-gpu=pci.bus_id,uuid --format=csv,noheader | sort)
    case $cards in
    *GPU-*) ;;
    *) fail "nvidia-smi shows no card: $(first_line "$cards")" && exit 1 ;;
    esac
    mkdir -p "$notes"
    declared=' '
    while read -r name at watts mhz percent <&3; do
        case $name in
        '' | '#'*) continue ;;
        esac
        uuid=$(which_card "$at")
        if [ -z "$uuid" ]; then
            fail "there is no card $at, which is to be $name"
            continue
        fi
        declared="$declared$uuid "
        # A table of before there were fans says nothing of them.
        percent=${percent:--}
        begin "$uuid" "$percent"
        keep_loaded "$name" "$uuid"
        # Fans before limits, which may let the card get hotter.
        if [ "$percent" = - ]; then free_fans "$name" "$uuid"; else hold_fans "$name" "$uuid" "$percent"; fi
        # Clocks before them as well: where a limit is refused they stand in for it.
        if [ "$mhz" = - ]; then free_clocks "$name" "$uuid"; else hold_clocks "$name" "$uuid" "$mhz"; fi
        if [ "$watts" = - ]; then free_limit "$name" "$uuid"; else hold_limit "$name" "$uuid" "$watts" "$mhz"; fi
        note "$uuid"
    done 3<"$1"
    for file in "$notes"/GPU-*; do
        case $declared in
        *" ${file##*/} "*) ;;
        *) [ ! -f "$file" ] || free "${file##*/}" ;;
        esac
    done
}

# A card that is not declared any more, or is not here any more.
free() {
    known=$(smi -i "$1" --query-gpu=uuid --format=csv,noheader)
    case $known in
    "$1")
        begin "$1" -
        free_fans "$1" "$1"
        free_clocks "$1" "$1"
        free_limit "$1" "$1"
        note "$1"
        [ "$limit $clocks $fans" = '- - -' ] || return
        ;;
    *"No devices were found"*) ;;
    *) fail "card $1 cannot be asked: $(first_line "$known")" && return ;;
    esac
    rm -f "$notes/$1"
}

release() {
    for file in "$notes"/GPU-*; do
        [ ! -f "$file" ] || free "${file##*/}"
    done
}

case $1 in
hold) hold "$2" ;;
release) release ;;
*) fail "gpu-power hold TABLE, or gpu-power release" ;;
esac
exit "$failed"
