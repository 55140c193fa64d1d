# Written by llamaherd for rig `duo`: change the inventory, not this file.
# Holds the cards to what is declared, now and at every start of Windows, by the scheduled task `llamaherd-gpu-power`.
# Inside WSL nothing can be set: the cards are Windows'. Run it as an administrator, as often as you like.
# To undo it: Unregister-ScheduledTask llamaherd-gpu-power, and start Windows again.
#Requires -RunAsAdministrator
$ErrorActionPreference = 'Stop'

$program = Join-Path $env:SystemRoot 'System32\nvidia-smi.exe'
$commands = @(
    '-i GPU-5090 -pl 450'
)
foreach ($command in $commands) {
    & $program $command.Split(' ')
    if ($LASTEXITCODE -ne 0) { throw "nvidia-smi.exe $command was refused; the reason is above." }
}

# The task has the commands themselves: as SYSTEM it is to run no file that a user can change.
$actions = $commands | ForEach-Object { New-ScheduledTaskAction -Execute $program -Argument $_ }
$trigger = New-ScheduledTaskTrigger -AtStartup
$settings = New-ScheduledTaskSettingsSet -AllowStartIfOnBatteries -DontStopIfGoingOnBatteries
$principal = New-ScheduledTaskPrincipal -UserId 'SYSTEM' -LogonType ServiceAccount -RunLevel Highest
Register-ScheduledTask -TaskName 'llamaherd-gpu-power' -Action $actions -Trigger $trigger -Settings $settings -Principal $principal -Force | Out-Null

# So that the next `herd up` knows that this was done, and does not ask for it again.
(Get-FileHash -Algorithm SHA256 $PSCommandPath).Hash |
    Set-Content -Encoding ascii ([IO.Path]::ChangeExtension($PSCommandPath, '.applied'))
