# Written by llamaherd for rig `wsl`: change the inventory, not this file.
# Starts the distribution when this user logs on, and holds it, by the scheduled task `llamaherd-autostart`: WSL starts
# nothing by itself, and systemd's services do not keep a distribution alive.
# -AtStartup starts it with Windows, before anyone logs on. Not every WSL can be started so (microsoft/WSL#9231): try it.
# Run it as an administrator, as often as you like. To undo it: Unregister-ScheduledTask llamaherd-autostart
param([string] $Distribution, [switch] $AtStartup)
#Requires -RunAsAdministrator
$ErrorActionPreference = 'Stop'
# Which distribution: the one that is named, or the only one that there is besides Docker's own.
$lxss = 'HKCU:\Software\Microsoft\Windows\CurrentVersion\Lxss'
$names = @(Get-ChildItem $lxss -ErrorAction SilentlyContinue |
    ForEach-Object { $_.GetValue('DistributionName') } |
    Where-Object { $_ -and $_ -notlike 'docker-desktop*' })
if (-not $Distribution -and $names.Count -eq 1) { $Distribution = $names[0] }
if ($names -notcontains $Distribution) {
    if ($names.Count -eq 0) { throw 'This user has no distribution. Run this elevated as the user that WSL belongs to.' }
    throw "Say which distribution: -Distribution with one of $($names -join ', ')."
}
$user = [Security.Principal.WindowsIdentity]::GetCurrent().Name

$command = "& wsl.exe --distribution '$Distribution' --exec /bin/sleep infinity"
$action = New-ScheduledTaskAction -Execute 'powershell.exe' -Argument "-NoProfile -WindowStyle Hidden -Command `"$command`""
if ($AtStartup) {
    $trigger = New-ScheduledTaskTrigger -AtStartup
    $principal = New-ScheduledTaskPrincipal -UserId $user -LogonType S4U
} else {
    $trigger = New-ScheduledTaskTrigger -AtLogOn -User $user
    $principal = New-ScheduledTaskPrincipal -UserId $user -LogonType Interactive
}
# A task is ended after three days otherwise, and the distribution with it (microsoft/WSL#10708).
$settings = New-ScheduledTaskSettingsSet -ExecutionTimeLimit ([TimeSpan]::Zero) -MultipleInstances IgnoreNew -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries
Register-ScheduledTask -TaskName 'llamaherd-autostart' -Action $action -Trigger $trigger -Settings $settings -Principal $principal -Force | Out-Null
Start-ScheduledTask -TaskName 'llamaherd-autostart'

# So that the next `herd up` knows that this was done, and does not ask for it again.
(Get-FileHash -Algorithm SHA256 $PSCommandPath).Hash |
    Set-Content -Encoding ascii ([IO.Path]::ChangeExtension($PSCommandPath, '.applied'))
