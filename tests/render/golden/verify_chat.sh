section 'chat container' ''
docker inspect --type container --format '{{.State.Status}} {{with .State.Health}}{{.Status}}{{end}} {{.Config.User}} {{.Image}}' llamaherd-chat 2>&1 | lines
section 'chat page' ''
curl -q -sS --noproxy '*' --max-time 10 http://127.0.0.1:3000/health 2>&1 | lines
section 'chat files' ''
stat -c '%a %u %n' /etc/llamaherd/chat/key /etc/llamaherd/chat/secret /var/lib/llamaherd-chat 2>&1 | lines
