{
<<< observe_cpu.sh: LC_ALL=C
>>> } | sha256sum) && say fetcher "${sum%% *}"
if [ "$in_wsl" ]; then
# What Windows says around this distribution; `wsl/state.py` reads it. Windows itself is not asked: nothing of it can be
# started over SSH, or with interop switched off. `root` is where the files are: empty.
root=''
# WSL reaches Windows' files with the rights of the user who started it: it can look into that one's folder, and into
# those of others only if that one is an administrator.
profiles=$(for drive in $(awk '$1 ~ /^[A-Za-z]:/ {print $2}' "$root/proc/mounts"); do
    for folder in "$root${drive%/}"/Users/*; do
        case ${folder##*/} in
        Public | Default | 'Default User' | 'All Users' | defaultuser* | WDAGUtilityAccount) ;;
        *) [ -d "$folder/AppData/Local" ] && printf '%s\n' "${folder#"$root"}" ;;
        esac
    done
done)
look_at() {
    [ ! -f "$root$1" ] || say wsl file "$1" "$(stat -L -c %.9Y "$root$1")" "$(base64 -w 0 "$root$1")"
}
several=$(printf '%s\n' "$profiles" | grep -c .)
printf '%s\n' "$profiles" | while IFS= read -r profile; do
    [ -n "$profile" ] && [ -d "$root$profile" ] || continue
    # Where a distribution's disk lies, of WSL's own or from the Store. There are hundreds of folders to be looked into,
    # by a slow protocol: only where it matters.
    disk=''
    [ "$several" = 1 ] || disk=$(ls "$root$profile"/AppData/Local/wsl/*/ext4.vhdx "$root$profile"/AppData/Local/Packages/*/LocalState/ext4.vhdx 2>/dev/null)
    say wsl profile "$profile" "$([ "$disk" ] && echo yes || echo no)"
    look_at "$profile/.wslconfig"
    for script in "$root$profile"/llamaherd/*.ps1; do
        [ -f "$script" ] || continue
        applied=$(tr -cd '0-9A-Fa-f' 2>/dev/null <"${script%.ps1}.applied" | cut -c -64)
        say wsl script "${script#"$root"}" "$(sha256sum <"$script" | cut -c -64)" "${applied:--}"
    done
done
look_at /etc/wsl.conf
say wsl machine "$(awk '/^btime/ {print $2}' "$root/proc/stat")" \
    "$(awk '/^MemTotal:/ {print $2}' "$root/proc/meminfo")" "$(grep -c '^processor' "$root/proc/cpuinfo")"
fi


<<< observe_cpu.sh: [ -e /run/llamaherd/undo/docker ] && say docker armed
>>> [ -f /run/llamaherd/fetch.id ] && case $(systemctl show -P ActiveState llamaherd-fetch.service 2>/dev/null) in
active | activating | deactivating | reloading) say fetch "$(cat /run/llamaherd/fetch.id 2>/dev/null)" ;;
esac

<<< observe_gpu.sh: finish
>>> } </dev/null
