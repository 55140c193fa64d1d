{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
# The timer of a run begins anew; where somebody has said otherwise since, there is none.
systemctl try-restart llamaherd-ready-box.chat.timer 2>/dev/null
if systemctl is-active -q llamaherd-ready-box.chat.timer; then say renewed; else say otherwise; fi
finish
<<< ask_gateway.sh: # Asks the gateway that runs, or tells it what becomes of a server, by the program that came with it.
>>> systemctl stop llamaherd-ready-box.chat.timer 2>/dev/null
said=$(/opt/llamaherd/libexec/gateway-talk renew box.chat 2>&1)
<<< ask_gateway.sh: case $? in
>>> } </dev/null
