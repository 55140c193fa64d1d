# One request; its headers come on stdin, where no process list shows a key. What is printed are the answer's headers.
gateway() {
    curl -q -s -k --noproxy '*' --max-time "$1" -H @- -o /dev/null -D - "$2" ${3:+-H 'Content-Type: application/json' -d "$3"} 2>&1 | tr -d '\r' | lines
}
section 'gateway unit' ''
systemctl show -p ActiveState -p UnitFileState llamaherd-gateway.service 2>&1 | lines
section 'gateway files' ''
stat -c '%a %U %n' /etc/llamaherd/gateway /etc/llamaherd/gateway/* 2>/dev/null | lines
section 'gateway keyless' ''
gateway 5 http://127.0.0.1:8000/v1/models </dev/null
section 'gateway wrong' ''
echo 'Authorization: Bearer llamaherd-wrong-key' | gateway 5 http://127.0.0.1:8000/v1/models
