# Written by llamaherd for rig `duo`: change the inventory, not this file.
# Leads the LAN to the servers that listen there: WSL has an address of its own behind Windows (NAT), another one after
# every start. The scheduled task `llamaherd-port-proxy` sets the way anew whenever this user logs on.
# The rules are for private and domain networks: a network that Windows calls public stays outside.
# Run it as an administrator, as often as you like. To undo it:
#   Unregister-ScheduledTask llamaherd-port-proxy; Get-NetFirewallRule -Group llamaherd | Remove-NetFirewallRule
#   netsh interface portproxy delete v4tov4 listenaddress=0.0.0.0 listenport=PORT
param([string] $Distribution)
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

$ports = @(8003)
# Our rules name the ports that we have led in before: they go, and those that are declared come.
foreach ($rule in @(Get-NetFirewallRule -Group 'llamaherd' -ErrorAction SilentlyContinue)) {
    $port = ($rule | Get-NetFirewallPortFilter).LocalPort
    & netsh.exe interface portproxy delete v4tov4 listenaddress=0.0.0.0 "listenport=$port" | Out-Null
    $rule | Remove-NetFirewallRule
}
foreach ($port in $ports) {
    New-NetFirewallRule -Group 'llamaherd' -Name "llamaherd-$port" -DisplayName "llamaherd, port $port" -Direction Inbound -Action Allow -Protocol TCP -LocalPort $port -Profile @('Private', 'Domain') | Out-Null
}

# The task has the commands themselves: with an administrator's rights it is to run no file that a user can change.
$command = @"
`$address = ((& wsl.exe --distribution '$Distribution' --exec hostname -I) -split ' ')[0]
if (-not `$address) { exit 1 }
foreach (`$port in $($ports -join ', ')) {
    & netsh.exe interface portproxy delete v4tov4 listenaddress=0.0.0.0 listenport=`$port
    & netsh.exe interface portproxy add v4tov4 listenaddress=0.0.0.0 listenport=`$port connectaddress=`$address connectport=`$port
}
"@
$encoded = [Convert]::ToBase64String([Text.Encoding]::Unicode.GetBytes($command))
$action = New-ScheduledTaskAction -Execute 'powershell.exe' -Argument "-NoProfile -WindowStyle Hidden -EncodedCommand $encoded"
$trigger = New-ScheduledTaskTrigger -AtLogOn -User $user
$principal = New-ScheduledTaskPrincipal -UserId $user -LogonType Interactive -RunLevel Highest
$settings = New-ScheduledTaskSettingsSet -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries
Register-ScheduledTask -TaskName 'llamaherd-port-proxy' -Action $action -Trigger $trigger -Settings $settings -Principal $principal -Force | Out-Null
Start-ScheduledTask -TaskName 'llamaherd-port-proxy'

# So that the next `herd up` knows that this was done, and does not ask for it again.
(Get-FileHash -Algorithm SHA256 $PSCommandPath).Hash |
    Set-Content -Encoding ascii ([IO.Path]::ChangeExtension($PSCommandPath, '.applied'))
