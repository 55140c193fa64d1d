# Written by llamaherd for rig `duo`: change the inventory, not this file.
# Starts the distribution when this user logs on, and holds it, by the scheduled task `llamaherd-autostart`: WSL starts
# nothing by itself, and systemd's services do not keep a distribution alive.
# -AtStartup starts it with Windows, before anyone logs on. Not every WSL can be started so (microsoft/WSL#9231): try it.
# Run it as an administrator, as often as you like. To undo it: Unregister-ScheduledTask llamaherd-autostart
param([string] $Distribution, [switch] $AtStartup)
<<< wsl_port-proxy.ps1: #Requires -RunAsAdministrator
>>> $user = [Security.Principal.WindowsIdentity]::GetCurrent().Name
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
