section 'virtual address unit' ''
systemctl show -p ActiveState -p UnitFileState llamaherd-address.service 2>&1 | lines
section 'virtual address' ''
/opt/llamaherd/libexec/virtual-address where 2>&1 | lines
# Wherever it is, the gateway there answers at it.
section 'virtual address asked' ''
curl -q -s -k --noproxy '*' --max-time 5 -o /dev/null -w '%{http_code}\n' http://10.77.0.50:8000/healthz 2>&1 | lines
