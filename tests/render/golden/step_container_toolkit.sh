# NVIDIA's container toolkit: all its packages at one version, which apt then keeps.
<<< step_packages.sh: # For scripts that install: apt waits for whoever else installs, and takes nothing away to make room.
>>>     exit 1
<<< step_accounts.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>>     echo "process $$ since $(date +%T): $4" >"$locks/$2"
hold 8 host 3600 "NVIDIA's container toolkit" || exit 1
mend
apt_get update || give_up 'apt could not read its lists anew'
wanted=''
# The versions that all of them have, the newest last.
common=''
for package in nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1; do
    has=$(apt-cache madison "$package" | awk '{print $3}' | sort -u)
    [ "$common" ] || [ "$package" != nvidia-container-toolkit ] || common=$has
    common=$(printf '%s\n' "$common" | grep -Fx "${has:-none}")
done
version=$(printf '%s\n' "$common" | awk -v wanted="$wanted" 'wanted == "" || index($0, wanted "-") == 1 || $0 == wanted' | sort -V | tail -n 1)
[ -n "$version" ] || {
    echo "none of this host's repositories has all packages of NVIDIA's container toolkit at ${wanted:-one version}" >&2
    echo "  help: what there is of all of them: $(echo ${common:-nothing}); write another \`version:\`, or see \`repository:\`" >&2
    exit 1
}
sed "s|@version@|$version|" >/etc/apt/preferences.d/llamaherd-container-toolkit.llamaherd-new <<'END' || exit 1
# Written by llamaherd for rig `duo`: change the inventory, not this file.
# These four go together at one version, and change it together.
Package: nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1
Pin: version @version@
Pin-Priority: 1001
END
chmod 0644 /etc/apt/preferences.d/llamaherd-container-toolkit.llamaherd-new && mv -f /etc/apt/preferences.d/llamaherd-container-toolkit.llamaherd-new /etc/apt/preferences.d/llamaherd-container-toolkit || exit 1
set --
for package in nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1; do set -- "$@" "$package=$version"; done
apt_get install --no-install-recommends --no-remove --allow-downgrades "$@" ||
    give_up "apt could not install NVIDIA's container toolkit $version"
echo "NVIDIA's container toolkit is at $version"
