# Written by llamaherd for rig `wsl`: change the inventory, not this file.
# Lets the LAN in to the servers that listen there: with mirrored networking, the Hyper-V firewall alone is in the way.
# Run it as an administrator, as often as you like.
# To undo it: Get-NetFirewallHyperVRule | Where-Object Name -like 'llamaherd-*' | Remove-NetFirewallHyperVRule
#Requires -RunAsAdministrator
$ErrorActionPreference = 'Stop'

$ports = @(8080)
# Windows' name for all virtual machines of WSL.
$wsl = '{40E0AC32-46A5-438A-A0B2-2B479E8F2E90}'
Get-NetFirewallHyperVRule | Where-Object Name -like 'llamaherd-*' | Remove-NetFirewallHyperVRule
foreach ($port in $ports) {
    New-NetFirewallHyperVRule -Name "llamaherd-$port" -DisplayName "llamaherd, port $port" -Direction Inbound -VMCreatorId $wsl -Protocol TCP -LocalPorts $port | Out-Null
}

# So that the next `herd up` knows that this was done, and does not ask for it again.
(Get-FileHash -Algorithm SHA256 $PSCommandPath).Hash |
    Set-Content -Encoding ascii ([IO.Path]::ChangeExtension($PSCommandPath, '.applied'))
