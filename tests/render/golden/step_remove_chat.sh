# No chat page any more. The folder goes last: while it is there, so is this. What people wrote stays.
<<< step_chat.sh: # Locks lie in a folder that is root's alone: elsewhere anybody could hold one, or put a link in its place.
>>> hold 8 host 3600 'the chat page' || exit 1
if docker inspect --type container llamaherd-chat >/dev/null 2>&1; then
    # It ends by itself: what somebody has just written is in its database.
    docker stop llamaherd-chat >/dev/null 2>&1
    docker rm -f llamaherd-chat >/dev/null || exit 1
fi
rm -rf /etc/llamaherd/chat /var/lib/llamaherd/written/chat
[ ! -d /var/lib/llamaherd-chat ] || echo "accounts and conversations stay in /var/lib/llamaherd-chat"
