<<< step_driver.sh: # Brings NVIDIA's driver: what would be done is worked out and judged first, with our preferences beside the host's own,
>>> base64|Pin-Priority: 1001
<<< step_driver_distribution.sh: rm -f "$work/preferences/00-llamaherd-nvidia-kept"
>>> # All at once: apt takes seconds to match preferences with all packages.
set -- libnvidia-compute-580 nvidia-compute-utils-580 nvidia-persistenced nvidia-driver-pinning-580 libnvidia-compute-580 nvidia-dkms-580-open nvidia-utils-580
<<< step_driver_distribution.sh: for kernel in ; do set -- "$@" "linux-headers-$kernel"; done
>>>     has=$(apt-cache -q madison libnvidia-compute-580 2>/dev/null | awk '{print $3}' | sed 's/^[0-9]*://; s/-.*//' | sort -uV | tail -n 8 | paste -sd ' ')
<<< step_driver.sh:     fail 'NVIDIA'"'"'s repository has no driver 580 (libnvidia-compute-580)' "  help: it has ${has:-none}; declare one of these, or another \`from\`"
>>>     case $(candidate "$each") in 580.*) set -- "$@" "$each" ;; esac
<<< step_driver_distribution.sh: for kernel in ; do
>>> # What is of another branch goes with it to the new one, if that has it by the same name; else it goes.
for each in libnvidia-compute-580 nvidia-dkms-580-open nvidia-utils-580; do
<<< step_driver.sh:     case " $* " in *" $each "*) continue ;; esac
>>>         "  help: remove what is named yourself, or bring it to the declared branch, then run this again"
<<< step_driver_distribution.sh: # Keeps what it takes to go back without a network, before anything is changed, and has the next boot judge the new one.
>>>     rm -f /etc/systemd/system/llamaherd-driver-undo.service
    rm -rf /var/lib/llamaherd/driver-before /var/lib/llamaherd/driver-before.new /run/llamaherd/driver-armed /var/lib/llamaherd/driver-reading
}
<<< step_driver_distribution.sh: before=/var/lib/llamaherd/driver-before
>>> base64|    rm -f /etc/systemd/system/llamaherd-driver-undo.service
base64|<<< driver_undo_judged.sh:     rm -rf /var/lib/llamaherd/driver-before /var/lib/llamaherd/driver-before.new /run/llamaherd/driver-armed /var/lib/llamaherd/driver-reading
base64|>>> exit 1
END
<<< step_driver_distribution.sh: put_file /etc/systemd/system/llamaherd-driver-undo.service /etc/systemd/system 0644 root <<'END'
>>> base64|# The other source of drivers: two are never mixed.
<<< step_driver.sh: base64|Package: src:nvidia-graphics-drivers* src:nvidia-open-gpu-kernel-modules* src:linux-restricted-modules* src:nvidia-persistenced src:nvidia-modprobe src:nvidia-settings src:nvidia-xconfig
>>> base64|Pin-Priority: 1001
<<< step_driver.sh: put_file /etc/apt/apt.conf.d/52llamaherd-nvidia /etc/apt/apt.conf.d 0644 root <<'END'
>>> ) || exit 1
<<< step_driver_distribution.sh: rm -f /etc/apt/preferences.d/00-llamaherd-nvidia-kept
>>> sed -i "s/@VERSION@/$version/" /etc/apt/preferences.d/00-llamaherd-nvidia-kept
<<< step_driver.sh: for kernel in $(printf '%s\n' "$(uname -r)" "$(next_kernel)" | sort -u); do
>>> disabled | masked) systemctl -q unmask nvidia-persistenced.service; systemctl -q enable nvidia-persistenced.service || exit 1 ;;
# What the kernel has already needs no boot that judges it.
[ "$(cat /sys/module/nvidia/version 2>/dev/null)" != "$version" ] || disarm
echo "driver $version is installed"
