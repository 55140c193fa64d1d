# Puts files of Windows, and wsl.conf, in place: each is written beside its place and renamed, so that no reader sees half
# a file. Owners and modes are Windows' on its disks.
umask 022
mkdir -p /etc && path=$(readlink -f /etc/wsl.conf) || exit 1
# What somebody has written since it was read is not lost.
if [ "$(sha256sum 2>/dev/null <"$path" | cut -c -64)" != '' ]; then
    echo '/etc/wsl.conf has changed while this ran, and was left alone; run again' >&2
    exit 1
fi
backup=/etc/wsl.conf.before-llamaherd
[ -e "$backup" ] || [ ! -e "$path" ] || { cp "$path" "$backup.new" && mv -f "$backup.new" "$backup"; } || exit 1
base64 -d >"$path.llamaherd-new" <<'END' || exit 1
base64|[boot]
base64|systemd=true
END
[ ! -e "$path" ] || chmod --reference="$path" "$path.llamaherd-new" 2>/dev/null
mv -fT "$path.llamaherd-new" "$path" || exit 1
mkdir -p /mnt/c/Users/tom && path=$(readlink -f /mnt/c/Users/tom/.wslconfig) || exit 1
# What somebody has written since it was read is not lost.
if [ "$(sha256sum 2>/dev/null <"$path" | cut -c -64)" != 2e2ad47cf7de5fe3fcc78fecf577a67c8f4e8160247877a248f661556cd0653f ]; then
    echo '/mnt/c/Users/tom/.wslconfig has changed while this ran, and was left alone; run again' >&2
    exit 1
fi
backup=/mnt/c/Users/tom/.wslconfig.before-llamaherd
[ -e "$backup" ] || [ ! -e "$path" ] || { cp "$path" "$backup.new" && mv -f "$backup.new" "$backup"; } || exit 1
base64 -d >"$path.llamaherd-new" <<'END' || exit 1
base64|# mine
base64|[wsl2]
base64|memory=64GB
base64|swap=16GB
base64|networkingMode=mirrored
base64|vmIdleTimeout=-1
base64|
base64|[general]
base64|instanceIdleTimeout=-1
END
[ ! -e "$path" ] || chmod --reference="$path" "$path.llamaherd-new" 2>/dev/null
mv -fT "$path.llamaherd-new" "$path" || exit 1
mkdir -p /mnt/c/Users/tom/llamaherd && path=$(readlink -f /mnt/c/Users/tom/llamaherd/port-proxy.ps1) || exit 1
base64 -d >"$path.llamaherd-new" <<'END' || exit 1
base64|# Written by llamaherd for rig `box`: change the inventory, not this file.
base64|# Lets the LAN in to the servers that listen there: with mirrored networking, the Hyper-V firewall alone is in the way.
base64|# Run it as an administrator, as often as you like.
base64|# To undo it: Get-NetFirewallHyperVRule | Where-Object Name -like 'llamaherd-*' | Remove-NetFirewallHyperVRule
base64|#Requires -RunAsAdministrator
base64|$ErrorActionPreference = 'Stop'
base64|
base64|$ports = @(8080)
base64|# Windows' name for all virtual machines of WSL.
base64|$wsl = '{40E0AC32-46A5-438A-A0B2-2B479E8F2E90}'
base64|Get-NetFirewallHyperVRule | Where-Object Name -like 'llamaherd-*' | Remove-NetFirewallHyperVRule
base64|foreach ($port in $ports) {
base64|    New-NetFirewallHyperVRule -Name "llamaherd-$port" -DisplayName "llamaherd, port $port" -Direction Inbound -VMCreatorId $wsl -Protocol TCP -LocalPorts $port | Out-Null
base64|}
base64|
base64|# So that the next `herd up` knows that this was done, and does not ask for it again.
base64|(Get-FileHash -Algorithm SHA256 $PSCommandPath).Hash |
base64|    Set-Content -Encoding ascii ([IO.Path]::ChangeExtension($PSCommandPath, '.applied'))
END
[ ! -e "$path" ] || chmod --reference="$path" "$path.llamaherd-new" 2>/dev/null
mv -fT "$path.llamaherd-new" "$path" || exit 1
mkdir -p /mnt/c/Users/tom/llamaherd && path=$(readlink -f /mnt/c/Users/tom/llamaherd/autostart.ps1) || exit 1
base64 -d >"$path.llamaherd-new" <<'END' || exit 1
base64|# Written by llamaherd for rig `box`: change the inventory, not this file.
base64|# Starts the distribution when this user logs on, and holds it, by the scheduled task `llamaherd-autostart`: WSL starts
base64|# nothing by itself, and systemd's services do not keep a distribution alive.
base64|# -AtStartup starts it with Windows, before anyone logs on. Not every WSL can be started so (microsoft/WSL#9231): try it.
base64|# Run it as an administrator, as often as you like. To undo it: Unregister-ScheduledTask llamaherd-autostart
base64|param([string] $Distribution, [switch] $AtStartup)
base64|#Requires -RunAsAdministrator
base64|$ErrorActionPreference = 'Stop'
base64|# Which distribution: the one that is named, or the only one that there is besides Docker's own.
base64|$lxss = 'HKCU:\Software\Microsoft\Windows\CurrentVersion\Lxss'
base64|$names = @(Get-ChildItem $lxss -ErrorAction SilentlyContinue |
base64|    ForEach-Object { $_.GetValue('DistributionName') } |
base64|    Where-Object { $_ -and $_ -notlike 'docker-desktop*' })
base64|if (-not $Distribution -and $names.Count -eq 1) { $Distribution = $names[0] }
base64|if ($names -notcontains $Distribution) {
base64|    if ($names.Count -eq 0) { throw 'This user has no distribution. Run this elevated as the user that WSL belongs to.' }
base64|    throw "Say which distribution: -Distribution with one of $($names -join ', ')."
base64|}
base64|$user = [Security.Principal.WindowsIdentity]::GetCurrent().Name
base64|
base64|$command = "& wsl.exe --distribution '$Distribution' --exec /bin/sleep infinity"
base64|$action = New-ScheduledTaskAction -Execute 'powershell.exe' -Argument "-NoProfile -WindowStyle Hidden -Command `"$command`""
base64|if ($AtStartup) {
base64|    $trigger = New-ScheduledTaskTrigger -AtStartup
base64|    $principal = New-ScheduledTaskPrincipal -UserId $user -LogonType S4U
base64|} else {
base64|    $trigger = New-ScheduledTaskTrigger -AtLogOn -User $user
base64|    $principal = New-ScheduledTaskPrincipal -UserId $user -LogonType Interactive
base64|}
base64|# A task is ended after three days otherwise, and the distribution with it (microsoft/WSL#10708).
base64|$settings = New-ScheduledTaskSettingsSet -ExecutionTimeLimit ([TimeSpan]::Zero) -MultipleInstances IgnoreNew -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries
base64|Register-ScheduledTask -TaskName 'llamaherd-autostart' -Action $action -Trigger $trigger -Settings $settings -Principal $principal -Force | Out-Null
base64|Start-ScheduledTask -TaskName 'llamaherd-autostart'
base64|
base64|# So that the next `herd up` knows that this was done, and does not ask for it again.
base64|(Get-FileHash -Algorithm SHA256 $PSCommandPath).Hash |
base64|    Set-Content -Encoding ascii ([IO.Path]::ChangeExtension($PSCommandPath, '.applied'))
END
[ ! -e "$path" ] || chmod --reference="$path" "$path.llamaherd-new" 2>/dev/null
mv -fT "$path.llamaherd-new" "$path" || exit 1
rm -f /mnt/c/Users/tom/llamaherd/gpu-power.ps1 /mnt/c/Users/tom/llamaherd/gpu-power.applied || exit 1
