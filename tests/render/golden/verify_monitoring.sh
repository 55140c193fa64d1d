# Asked as anybody on this host could: of systemd, of the programs themselves, and of the files.
section 'monitoring unit' llamaherd-exporter.service
systemctl show -p ActiveState -p UnitFileState llamaherd-exporter.service 2>&1 | lines
section 'monitoring unit' llamaherd-prometheus.service
systemctl show -p ActiveState -p UnitFileState llamaherd-prometheus.service 2>&1 | lines
section 'monitoring unit' llamaherd-alertmanager.service
systemctl show -p ActiveState -p UnitFileState llamaherd-alertmanager.service 2>&1 | lines
section 'monitoring exporter' ''
curl -q -s --noproxy '*' --max-time 10 http://127.0.0.1:9100/metrics 2>&1 | grep -c '^node_' | lines
section 'monitoring files' ''
stat -c '%a %U %n' /etc/llamaherd/monitoring /etc/llamaherd/monitoring/* /etc/llamaherd/monitoring/keys/* 2>/dev/null | lines
section 'monitoring read' ''
# What the Prometheus that runs has read, as a rule of it says.
prometheus_read() {
    curl -q -s --noproxy '*' --max-time 5 'http://127.0.0.1:9090/api/v1/rules?type=record' 2>/dev/null |
        grep -o '"spec":"[0-9a-f]*"' | cut -d '"' -f 4 | head -n 1
}
prometheus_read | lines
section 'monitoring down' ''
curl -q -s --noproxy '*' --max-time 10 -G --data-urlencode 'query=up{group=""} == 0 or label_replace(max by (job, rig, group) (up{group!=""}) == 0, "instance", "$1", "group", "(.+)")' http://127.0.0.1:9090/api/v1/query 2>&1 | grep -o '"instance":"[^"]*"' | cut -d '"' -f 4 | lines
section 'monitoring alertmanager' ''
curl -q -s --noproxy '*' --max-time 10 -o /dev/null -w '%{http_code}\n' http://127.0.0.1:9093/-/ready 2>&1 | lines
