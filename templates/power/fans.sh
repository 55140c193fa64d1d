# uuid, and percent or `auto`: tells all fans of a card. Its exit codes say what became of it.
tell_fans() {
    timeout 60 "${0%/*}/gpu-fans" "$1" "$2" 2>&1
}

# name uuid percent, `fans` being what was held: sets it to what is held now.
hold_fans() {
    said=$(tell_fans "$2" "$3")
    case $? in
    0) fans=$3 && echo "the fans of card $1 are held at $3 %" && return ;;
    # It has no such fans, or takes no such speed: nothing was changed.
    3 | 4) ;;
    *) fans='?' ;;
    esac
    fail "the fans of card $1 are not held at $3 %: $(first_line "$said")"
}

# name uuid: no fan speed of ours any more.
free_fans() {
    [ "$fans" = - ] && return
    said=$(tell_fans "$2" auto)
    case $? in
    0) fans=- && echo "the fans of card $1 are the driver's own to control again" ;;
    # Nothing to go back to: it has no fans that can be set, or no driver that would hold them.
    3) fans=- ;;
    *) fail "the fans of card $1 do not go back to the driver's own control: $(first_line "$said")" ;;
    esac
}
