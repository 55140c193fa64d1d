{
<<< ask_gateway.sh: LC_ALL=C
>>>     finish
# What a run has asked for holds until somebody says otherwise: its timer is gone then.
if ! systemctl is-active -q llamaherd-ready-box.chat.timer; then
    say otherwise
<<< ask_gateway.sh:     finish
>>> systemctl stop llamaherd-ready-box.chat.timer 2>/dev/null
said=$(/opt/llamaherd/libexec/gateway-talk ready box.chat 2>&1)
<<< ask_gateway.sh: case $? in
>>> } </dev/null
