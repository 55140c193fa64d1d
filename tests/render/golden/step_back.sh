# Whether a host is back from its reboot for good: it may boot once more, to go back to the driver before.
<<< observe_driver.sh: # Whether this boot is finding out just now whether a driver answers that was changed before it, or is going back.
>>>     *) return 1 ;;
[ ! -e /run/llamaherd/reboot ] && ! judging
