{
<<< observe_gpu.sh: LC_ALL=C
>>>     say driver "there is no nvidia-smi"
# NVIDIA's driver: as packages, as modules on disk and in the kernel, and as what the user-space library is.
PATH=$PATH:/usr/sbin:/sbin
packages=$(dpkg-query -W -f 'nvidia\tpackage\t${Package}\t${Version}\t${db:Status-Status}\n' 'nvidia-driver*' 'nvidia-open*' 'nvidia-headless*' 'nvidia-dkms*' 'nvidia-kernel*' 'nvidia-firmware*' 'nvidia-utils*' 'nvidia-compute-utils*' nvidia-smi nvidia-persistenced nvidia-modprobe nvidia-settings nvidia-xconfig nvidia-alternative nvidia-legacy-check nvidia-suspend-common 'nvidia-egl*' 'nvidia-vulkan*' 'nvidia-opencl*' 'nvidia-vdpau*' nvidia-cuda-mps nvidia-libopencl1 libcuda1 libcudadebugger1 libnvcuvid1 libnvoptix1 'libnvidia-[!c]*' 'libnvidia-cfg1*' 'libnvidia-compute*' 'libnvidia-common*' 'libnvidia-compiler*' 'libgl1-nvidia*' 'libglx-nvidia*' 'libegl-nvidia*' 'libgles-nvidia*' 'libxnvctrl*' 'firmware-nvidia-gsp*' firmware-nvidia-graphics 'xserver-xorg-video-nvidia*' 'linux-modules-nvidia-*' 'linux-objects-nvidia-*' 'linux-signatures-nvidia-*' 'cuda-drivers*' dkms 'linux-image-[!0-9u]*' 'linux-headers-[!0-9]*' 2>/dev/null | grep -v '	not-installed')
[ -z "$packages" ] || printf '%s\n' "$packages"
names=$(printf '%s\n' "$packages" | awk -F'\t' '$5 == "installed" {print $3}')
# Where apt would have the version that is installed: NVIDIA's repositories are flat, and no distribution's are. Without
# preferences, which take seconds to be matched with all packages.
[ -z "$names" ] || apt-cache -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null policy $names 2>/dev/null | awk '
    /^[^ ]/ {name = substr($1, 1, length($1) - 1)}
    /^ \*\*\* / {here = 1; next}
    /^     [^ ]/ {here = 0}
    here && /^        / && NF > 2 {print "nvidia\torigin\t" name "\t" (NF == 3 ? "nvidia" : "distribution")}' | sort -u
[ -d /sys/module/nvidia ] && say nvidia loaded "$(cat /sys/module/nvidia/version 2>/dev/null)"
[ -d /sys/module/nvidia_uvm ] && say nvidia uvm
for each in $(printf '%s\n' "$kernel" "${next:-$kernel}" | sort -u); do
    version=$(modinfo -k "$each" -F version nvidia 2>/dev/null) && [ -n "$version" ] && say nvidia disk "$each" "$version"
done
for library in /usr/lib/*/libnvidia-ml.so.1; do
    [ -e "$library" ] && library=$(readlink -f "$library") && say nvidia library "${library##*.so.}" && break
done
if command -v nvidia-smi >/dev/null; then
    # A driver that hangs must not hang this.
    said=$(timeout 12 nvidia-smi -L 2>&1) || say nvidia says "$(printf '%s\n' "$said" | grep . | head -n 1 | tr '\t' ' ')"
fi
[ -x /usr/bin/nvidia-uninstall ] && ! dpkg -S /usr/bin/nvidia-uninstall >/dev/null 2>&1 && say nvidia run
show=$(systemctl show -p LoadState,ActiveState,UnitFileState nvidia-persistenced.service 2>/dev/null)
of() { printf '%s\n' "$show" | sed -n "s/^$1=//p"; }
[ "$(of LoadState)" = loaded ] && say nvidia persistence "$(of ActiveState)" "$(of UnitFileState)"
apt-get indextargets --format 'nvidia	component	$(COMPONENT)' 'Created-By: Packages' 2>/dev/null | sort -u
say nvidia free "$(df -B1 --output=avail / | tail -n 1 | tr -d ' ')"
# While the mark is there, the reboot that the note is of has not come.
[ -f /var/lib/llamaherd/driver-reboot ] && [ ! -e /run/llamaherd/reboot ] && say nvidia tried "$(head -n 1 /var/lib/llamaherd/driver-reboot)"
# Whether this boot is finding out just now whether a driver answers that was changed before it, or is going back.
judging() {
    [ -d /var/lib/llamaherd/driver-before ] && [ ! -e /run/llamaherd/driver-armed ] || return 1
    case $(systemctl show -p ActiveState -p Job llamaherd-driver-undo.service 2>/dev/null | tr '\n' ' ') in
    *ActiveState=activating* | *Job=[1-9]*) ;;
    *) return 1 ;;
    esac
}
[ -d /var/lib/llamaherd/driver-before ] && say nvidia kept "$(cat /var/lib/llamaherd/driver-before/from)" && judging && say nvidia judging
[ -e /var/lib/llamaherd/driver-before/answered ] && say nvidia answered
[ -f /var/lib/llamaherd/driver-reading ] && say nvidia reading "$(head -c 65536 /var/lib/llamaherd/driver-reading | base64 -w 0)"
[ -f /var/lib/llamaherd/driver-refused ] && awk -F'\t' 'NR == 1 && (NF == 5 || NF == 6) {print "nvidia\trefused\t" $0}' /var/lib/llamaherd/driver-refused


<<< observe_gpu.sh: # The CUDA toolkit that is named, whoever brought it: what its compiler says of itself.
>>> } </dev/null
