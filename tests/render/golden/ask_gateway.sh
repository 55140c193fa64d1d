{
<<< texts.sh: LC_ALL=C
>>> printf '\n@ begin\n'
<<< status_look_gateway.sh: # Asks the gateway that runs, or tells it what becomes of a server, by the program that came with it.
>>>     finish
# What somebody says of this server now holds, and not what a run has left behind.
systemctl stop llamaherd-ready-box.chat.timer 2>/dev/null
said=$(/opt/llamaherd/libexec/gateway-talk drain box.chat 60 2>&1)
case $? in
0)
    printf '%s\n' "$said"
    ;;
<<< status_look_gateway.sh: 2) say older ;;
>>> } </dev/null
